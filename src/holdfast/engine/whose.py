"""Whose run, schedule or message a call means: the tenant it names, else the one its client is bound to."""

from __future__ import annotations

from holdfast.arguments import check_tenant, check_text
from holdfast.clipped import clipped
from holdfast.errors import UsageError
from holdfast.records import ANY, DEFAULT_TENANT, OWN, OwnTenant, Tenant

Named = Tenant | OwnTenant | None


def tenant_of(own: Tenant, named: Named, unsaid: Tenant = DEFAULT_TENANT) -> Tenant:
    """Give the tenant of a call; `unsaid` where neither the call nor its client names one.

    A client that is bound refuses another tenant than its own, and ANY too.
    """
    if named is OWN:
        return unsaid if own is ANY else own
    if named is None:  # it may be a name that somebody has forgotten: neither `default` nor all is meant
        raise UsageError("tenant is None: name a tenant, or say ANY where all are meant")
    said = named if named is ANY else check_text("tenant", named)
    if own is not ANY and said != own:
        other = "ANY" if said is ANY else clipped(said)
        raise UsageError(f"this app is bound to tenant {clipped(own)}: it cannot name {other}")
    return said


def one_tenant(own: Tenant, named: Named) -> str:
    """Give the one tenant of a call that makes something: ANY is none."""
    said = tenant_of(own, named)
    if said is ANY:
        raise UsageError("tenant is ANY: what is made belongs to one tenant, name it")
    return check_tenant(said)
