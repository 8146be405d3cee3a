"""Checks of a server before a store is opened on it, with messages for the people who run it."""

from __future__ import annotations

from holdfast.errors import StoreError, Unavailable
from holdfast.escaping import safe_logger

from .address import Address
from .sessions.session import Session

log = safe_logger("holdfast.postgres")

VERSION_MIN = 13
_LOOK = """
select current_setting('server_version_num')::integer / 10000 as version, pg_is_in_recovery() as standby,
       current_setting('server_encoding') as encoding, current_setting('transaction_read_only') as read_only,
       current_setting('fsync', true) as fsync, current_setting('full_page_writes', true) as full_page_writes,
       current_setting('synchronous_commit', true) as synchronous_commit,
       current_setting('transaction_isolation') as isolation
"""


async def check_server(session: Session, address: Address) -> None:
    """Refuse a server that could lose committed data, or that cannot do the work."""
    found, where = await session.fetchrow(_LOOK), address.shown
    if found["version"] < VERSION_MIN:
        raise StoreError(
            f"{where}: this is Postgres {found['version']}, and at least {VERSION_MIN} is needed: upgrade it"
        )
    if found["encoding"] != "UTF8":
        raise StoreError(
            f"{where}: the encoding of this database is {found['encoding']}; "
            "create one with encoding 'UTF8' (template template0), and name it in the URL"
        )
    if found["standby"] or found["read_only"] == "on":
        why = "is a standby" if found["standby"] else "takes no writes (default_transaction_read_only is on)"
        raise Unavailable(f"{where}: this server {why}: name the primary in the URL")
    if found["isolation"] != "read committed":
        raise StoreError(
            f"{where}: default_transaction_isolation is {found['isolation']!r} for this user or database, "
            "and `read committed` is needed: alter role … reset default_transaction_isolation"
        )
    if found["fsync"] == "off":
        _refuse_careless(address)
        return
    for name in ("synchronous_commit", "full_page_writes"):
        if found[name] == "off":
            log.warning("%s: %s is off: a crash of the server may lose what it has confirmed", where, name)


def _refuse_careless(address: Address) -> None:
    if not address.allow_fsync_off:
        raise StoreError(
            f"{address.shown}: this server runs with fsync=off and may lose everything when it crashes: set "
            "fsync=on in its configuration, or, for tests only, add allow_fsync_off=1 to the URL"
        )
