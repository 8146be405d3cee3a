"""What may be taken, and how much of it: registered types, limits, and what holds a run back."""

from __future__ import annotations

from datetime import datetime

import msgspec

RUNTIME = "python"  # whose runs are taken unless something else is said
SCOPES = ("type", "tenant", "key")  # what a limit is about; key: the limit_key of a run


class Registration(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A registered type: in which runtime it is executed, and whether at all."""

    workflow_name: str
    runtime: str = RUNTIME
    is_enabled: bool = True
    description: str = ""
    intent_type: str = "workflow"
    created_at: datetime
    updated_at: datetime


class Limit(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """How much of one name may be claimed. A name that ends in % speaks for each name with that prefix."""

    scope: str  # one of SCOPES
    name: str
    concurrency: int | None = None  # leased runs at once
    rate: int | None = None  # claims in any period
    period_seconds: float | None = None
    weight: float | None = None  # of a tenant: its share of the claims
    paused_until: datetime | None = None  # of a key


class Hold(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One thing that keeps a pending run from being claimed, beside its time.

    disabled     its type is switched off in the registry
    runtime      its type belongs to another `runtime`
    concurrency  `used` runs of `name` are leased, `allowed` may be
    rate         `used` runs of `name` were claimed in the last period, `allowed` may be; free again `until`
    paused       its key is paused `until`
    """

    why: str
    scope: str = "type"
    name: str
    rule: str  # the name of the entry that says so: `name` itself, its bare name, or a prefix
    used: int | None = None
    allowed: int | None = None
    until: datetime | None = None
    runtime: str | None = None
