"""Units of records: instants, JSON text, tenants, and the defaults of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Final

Json = Annotated[str, "json"]  # JSON text of a user; encryption looks for this mark
Instant = int  # microseconds since 1970-01-01T00:00:00Z
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000  # microseconds
DEFAULT_TENANT = "default"
PRIORITY = 100
MAX_ATTEMPTS = 3
MAX_CRASHES = 4
COST_UNIT = 1_000_000  # costs are kept as integers, or sums would differ between stores


class AnyTenant(Enum):
    """The type of `ANY`, which has no other value."""

    ANY = object()  # no encoder accepts it, so it can never become a name by mistake

    def __repr__(self) -> str:
        """Give its name, as it is written."""
        return "ANY"


ANY: Final = AnyTenant.ANY  # all tenants; operators, workers and keepers must write it
Tenant = str | AnyTenant  # the name of one tenant, or ANY


class Beginning(Enum):
    """The type of `BEGINNING`, which has no other value."""

    BEGINNING = object()

    def __repr__(self) -> str:
        """Give its name, as it is written."""
        return "BEGINNING"


BEGINNING: Final = Beginning.BEGINNING  # the target of a rewind that forgets all steps


class Same(Enum):
    """The type of `SAME`, which has no other value."""

    SAME = object()

    def __repr__(self) -> str:
        """Give its name, as it is written."""
        return "SAME"


SAME: Final = Same.SAME  # the params of a rerun that repeats those of the first run


class OwnTenant(Enum):
    """The type of `OWN`, which has no other value."""

    OWN = object()  # as ANY

    def __repr__(self) -> str:
        """Give its name, as it is written."""
        return "OWN"


OWN: Final = OwnTenant.OWN  # no tenant was given: the one that an app is bound to, else `default`


def tenant_name(tenant: Tenant) -> str | None:
    """Give the name of the tenant; None for ANY, as stores keep it inside."""
    return None if tenant is ANY else tenant


def instant(at: datetime) -> Instant:
    """Return a datetime with a zone as stores keep it. `arguments.check_datetime` refuses one without."""
    return (at.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def moment(at: Instant) -> datetime:
    """Return an instant as people read it; beyond the calendar it is the first or the last one."""
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if at > 0 else datetime.min.replace(tzinfo=UTC)


def amount(units: int) -> str:
    """Return a cost for people: with two decimals, or as many as it has."""
    whole, rest = divmod(units, COST_UNIT)
    return f"{whole}.{f'{rest:06}'.rstrip('0'):<02}" if rest else f"{whole}.00"
