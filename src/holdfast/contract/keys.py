"""API keys of the HTTP API, the keys that sign its tokens, and the audit log of its acts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.records import ApiKey, AuditEntry, AuditWrite, Instant, NewApiKey, SigningKey, Tenant

AUDIT_SECONDS = 90 * 86400.0  # how long a row of the audit log is kept
KEY_KEEP_SECONDS = 90 * 86400.0  # how long a key is kept after it was revoked or has expired
USED_SECONDS = 60.0  # last_used_at may be that much older than the last use
AUDIT_SLACK_SECONDS = 3600.0  # by so much the times of audit rows may be out of order
AUDIT_BATCH = 1000  # rows of one `note_audit`, keys of one `use_keys`
PATTERNS_MAX = 100  # type patterns of one key


class Keys(Protocol):
    """An API key belongs to one tenant. The store keeps the SHA-256 of its secret and never the secret.

    A key is live until it is revoked or expires. The hashes are in the answer of `find_key` only; in all
    other answers they are empty texts. `audit`: a row of the audit log that is written in the same commit,
    if the verb changes something; if its tenant or target is empty, it becomes that of the key.
    """

    async def create_key(self, new: NewApiKey, audit: AuditWrite | None = None) -> ApiKey:
        """Store a key, in one commit. Conflict: its id is taken, or its name by a live key of that tenant.
        The same call again (same id, tenant, name and secret_hash) returns the key and changes nothing.
        """

    async def keys(self, tenant: Tenant, limit: int = 100, after: str | None = None) -> Sequence[ApiKey]:
        """Keys by id, live or not, after the cursor `after` (the last id of the previous page). ANY: of all
        tenants.
        """

    async def find_key(self, id: str) -> ApiKey | None:
        """The key with its hashes, of whatever tenant, also one that is revoked or has expired: for
        authentication only. One indexed read.
        """

    async def rotate_key(
        self,
        id: str,
        tenant: Tenant,
        secret_hash: str,
        overlap_seconds: float = 0.0,
        audit: AuditWrite | None = None,
    ) -> ApiKey:
        """Give the key another secret; the present one stays valid for overlap_seconds (0: it ends at once),
        the one before it ends at once. rotated_at is now. The hash that the key has already: unchanged.
        `UnknownApiKey`, also for another tenant's. Conflict: it is revoked.
        """

    async def revoke_key(
        self, id: str, tenant: Tenant, by: str = "", audit: AuditWrite | None = None
    ) -> ApiKey:
        """End a key for good: revoked_at is now. Revoked: unchanged. `UnknownApiKey`."""

    async def use_keys(self, ids: Sequence[str]) -> None:
        """last_used_at is now, where it is empty or USED_SECONDS old; one write for all keys, none if nothing
        changes. Unknown ids are left out. At most AUDIT_BATCH ids.
        """

    async def signing_keys(self, fresh: bytes) -> tuple[SigningKey, ...]:
        """The signing keys of the store, newest first, at most two. If there is none, `fresh` (32 random
        bytes) becomes the first; callers at the same time get the same one. With one in the store nothing is
        written. An export of the store leaves these keys out.
        """

    async def add_signing_key(self, fresh: bytes) -> tuple[SigningKey, ...]:
        """Put a new signing key in front: the two newest stay, and are returned. The newest one again:
        unchanged.
        """

    async def note_audit(self, entries: Sequence[AuditWrite]) -> None:
        """Add rows to the audit log, in one commit; at most AUDIT_BATCH. Of each text the first
        AUDIT_TEXT_MAX characters are kept, and characters that no store can keep become `?`. The same call
        again writes the rows again.
        """

    async def audit(
        self,
        tenant: Tenant,
        limit: int = 100,
        after: int | None = None,
        actions: Sequence[str] = (),
        keys: Sequence[str] = (),
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> Sequence[AuditEntry]:
        """Rows of the audit log, newest first, before the cursor `after` (the last seq of the previous page).
        actions, keys: only these actions, only acts with these API keys (ids). between: from the first
        instant on, up to the second, which is not included. ANY: of all tenants. An SQL store looks at no
        more than bounds.AUDIT_ROWS rows in one statement, and at further rows in the next one if it has found
        none: a page may be short, and only an empty one is the end. It finds the rows between two instants by
        their seq: a row whose time is more than AUDIT_SLACK_SECONDS away from that of its neighbours, after a
        change of the clock, may be left out then.
        """
