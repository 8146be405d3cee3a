"""Registered types, limits, and the reasons why a run is held back."""

from __future__ import annotations

from datetime import datetime

import msgspec

RUNTIME = "python"  # the default runtime
SCOPES = ("type", "tenant", "key")  # the subject of a limit; key: the limit_key of a run


class Registration(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A registered type: its runtime, and whether it is enabled."""

    workflow_name: str
    runtime: str = RUNTIME
    is_enabled: bool = True
    description: str = ""
    intent_type: str = "workflow"
    created_at: datetime
    updated_at: datetime


class Limit(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A limit on the claims of one name. A name that ends in % applies to each name with that prefix."""

    scope: str  # one of SCOPES
    name: str
    concurrency: int | None = None  # leased runs at once
    rate: int | None = None  # claims in any period
    period_seconds: float | None = None
    weight: float | None = None  # of a tenant: its share of the claims
    paused_until: datetime | None = None  # of a key


class Hold(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One reason why a pending run cannot be claimed, apart from its time.

    disabled     its type is switched off in the registry
    runtime      its type belongs to another `runtime`
    concurrency  `used` runs of `name` are leased, `allowed` may be
    rate         `used` runs of `name` were claimed in the last period, `allowed` may be; free again `until`
    paused       its key is paused `until`
    """

    why: str
    scope: str = "type"
    name: str
    rule: str  # the name of the entry that applies: `name` itself, its name without version, or a prefix
    used: int | None = None
    allowed: int | None = None
    until: datetime | None = None
    runtime: str | None = None
