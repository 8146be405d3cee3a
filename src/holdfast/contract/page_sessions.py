"""Sessions of the pages: who has signed in with which API key."""

from __future__ import annotations

from typing import Protocol

from holdfast.records import NewPageSession, PageSession

SEEN_SECONDS = 60.0  # seen_at may be that much older than the last use
SESSIONS_PER_KEY = 100  # sessions of one API key; more of them push out the oldest


class PageSessions(Protocol):
    """A session is found by the SHA-256 of its random id. An export of the store leaves all of them out.

    The store does not look at the API key: whoever reads a session checks that the key is live, and that it
    has the secret that was used.
    """

    async def create_session(self, new: NewPageSession) -> PageSession:
        """Store a session, in one commit; of a key the SESSIONS_PER_KEY newest stay. The same call again
        returns the session. Conflict: another session has this hash.
        """

    async def use_session(self, id_hash: str) -> PageSession | None:
        """Return a live session; None: there is none, or it has ended. seen_at becomes now, and ends_at moves
        with it, where seen_at is SEEN_SECONDS old; otherwise nothing is written.
        """

    async def end_session(self, id_hash: str) -> None:
        """Remove a session. An unknown one: nothing."""
