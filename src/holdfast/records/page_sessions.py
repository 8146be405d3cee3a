"""Sessions of people who have signed in to the pages with an API key."""

from __future__ import annotations

from datetime import datetime

import msgspec


class NewPageSession(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A session that is to be stored. Its id is never stored: only the SHA-256 of it is."""

    id_hash: str  # SHA-256 of the random id, in hex
    key_id: str  # the API key that was used to sign in
    secret_hash: str  # SHA-256 of the key's secret that was used: the session ends with it
    idle_seconds: float  # it ends when it was not used for so long
    keep_seconds: float  # it ends so long after its beginning, used or not


class PageSession(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A stored session. It is live before `ends_at`."""

    id_hash: str
    key_id: str
    secret_hash: str
    idle_seconds: float
    created_at: datetime
    seen_at: datetime  # within a minute
    ends_at: datetime  # if it is not used again
    expires_at: datetime  # used or not
