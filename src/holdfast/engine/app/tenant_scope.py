"""The tenant of a call: the tenant that the call names, else the tenant that its client is bound to."""

from __future__ import annotations

from holdfast.arguments import check_tenant, check_text
from holdfast.clipped import clipped
from holdfast.engine.definitions import RESERVED
from holdfast.errors import UsageError
from holdfast.records import ANY, DEFAULT_TENANT, OWN, OwnTenant, Tenant

Named = Tenant | OwnTenant | None


def tenant_of(own: Tenant, named: Named, unsaid: Tenant = DEFAULT_TENANT) -> Tenant:
    """Return the tenant of a call; `unsaid` when neither the call nor its client names one.

    A bound client refuses any other tenant, and ANY too.
    """
    if named is OWN:
        return unsaid if own is ANY else own
    if named is None:  # None may be a forgotten value: it means neither `default` nor all tenants
        raise UsageError("tenant is None: name a tenant, or give ANY for all tenants")
    said = named if named is ANY else check_text("tenant", named)
    if own is not ANY and said != own:
        other = "ANY" if said is ANY else clipped(said)
        raise UsageError(f"this app is bound to tenant {clipped(own)}: it cannot name {other}")
    return said


def one_tenant(own: Tenant, named: Named) -> str:
    """Return the tenant of a call that creates something; ANY is refused."""
    if named is OWN:
        return DEFAULT_TENANT if own is ANY else own  # the tenant of a client was checked when it was made
    said = tenant_of(own, named)
    if said is ANY:
        raise UsageError("tenant is ANY, but this call creates something for one tenant: name it")
    return not_reserved(check_tenant(said))


def not_reserved(tenant: str) -> str:
    """Return the tenant, if it is not one of the engine's own, whose runs concern all tenants."""
    if tenant.startswith(RESERVED):
        raise UsageError(
            f"tenant {clipped(tenant)}: names that begin with {RESERVED!r} belong to the engine: "
            "use another name"
        )
    return tenant
