"""A call: one request of a caller, with the verbs that it may use and the shared parts of the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from holdfast.arguments import ALL_TENANTS
from holdfast.engine.app.client import StartedBy, StoreClient
from holdfast.engine.app.tenants import bound_client
from holdfast.engine.tracing.carried import checked, same_trace
from holdfast.engine.tracing.provider import current_traceparent
from holdfast.records import ANY, Scope, Tenant
from holdfast.shown.shapes import Shape

from .access import Actor, check_scopes, tenant_for
from .operation import Operation
from .problems import Code, Refusal
from .redaction import redacted

if TYPE_CHECKING:
    from .parsing import Incoming
    from .server import Api

T = TypeVar("T")
S = TypeVar("S", bound=Shape)
PAGE, PAGE_MAX = 100, 500  # rows of a page
_MAKING = frozenset({"fire_schedule", "create_key", "append_step", "resend"})  # they take no key
_NO_FILTERS = {"limit", "cursor", "tenant", "after", "values", "children"}  # fields of a list's query


class Page(Shape, Generic[T], frozen=True, kw_only=True):
    """One page of a list. next: the cursor of the next page; null: this was the last one.

    A page may have fewer items than `limit`, even none, and still have a next one.
    """

    items: tuple[T, ...]
    next: str | None


class Call:
    """One request. A handler gets it as its first argument."""

    def __init__(self, api: Api, operation: Operation, actor: Actor, request: Incoming, id_: str) -> None:
        self.api, self.operation, self.actor, self.request, self.id = api, operation, actor, request, id_
        self.status = operation.statuses[0]  # of the answer; a handler may choose another one of its statuses
        self.tenant = actor.tenant
        self.target = ""  # what it is about, for the audit log
        self.is_repeatable = operation.id not in _MAKING  # a second request would be recognised

    @property
    def by(self) -> str:
        """The name of the caller, for the trail."""
        return self.actor.name

    def client(self, tenant: str | None = None, *, one: bool = False) -> StoreClient:
        """Return the verbs for the caller's tenant. An operator may name another one, or `*` for all.

        one: refuse `*`, for what is made belongs to one tenant.
        """
        self.tenant = tenant_for(self.actor, tenant)
        key, most = self.actor.key_id or None, self.actor.open_runs_max
        trace = "" if self.operation.method == "GET" else self._trace()  # only a start needs it
        caller = StartedBy(self.actor.name, key, most, self.id, trace)
        if self.tenant != ALL_TENANTS:
            return bound_client(self.api.client, self.tenant, caller)
        if one:
            raise Refusal(Code.BAD_VALUE, "query.tenant: this needs one tenant, not all of them")
        return bound_client(self.api.client, ANY, caller)

    def _trace(self) -> str:
        """Return the trace of this request. The span of an instrumented server belongs to the caller's trace,
        and is nearer. Any other current span belongs to the program around the server, not to the request. A
        bad header is ignored.
        """
        said, current = self.request.table.first.get(b"traceparent"), current_traceparent()
        asked = "" if said is None else checked(said.decode("latin-1"))
        return current if not asked or same_trace(asked, current) else asked

    @property
    def scope(self) -> Tenant:
        """The tenant of the request as the library names it: ANY for all tenants."""
        return ANY if self.tenant == ALL_TENANTS else self.tenant

    def reaches(self, tenant: str) -> bool:
        """Return True for a tenant that the request is about."""
        return self.tenant in {tenant, ALL_TENANTS}

    def shown(self, shape: S) -> S:
        """Return the record as the caller may see it."""
        return shape if self.actor.sees_values else redacted(shape)

    def after(self, cursor: str | None, where: Any = None) -> tuple[Any, ...] | None:
        """Return the place that a cursor of this list holds; None without a cursor."""
        if cursor is None:
            return None
        return self.api.signing.cursors.read(cursor, self.operation.id, self.tenant, _key(where))

    def cursor(self, where: Any, last: Sequence[Any]) -> str:
        """Return the cursor of the page after `last`."""
        return self.api.signing.cursors.make(self.operation.id, self.tenant, _key(where), last)

    def page(self, items: Sequence[T], last: Sequence[Any] | None, where: Any = None) -> Page[T]:
        """Return a page. last: the place of its last row; None: there is no further page."""
        return Page(items=tuple(items), next=None if last is None else self.cursor(where, last))

    def need(self, *scopes: Scope) -> None:
        """Refuse a caller that has none of these scopes."""
        check_scopes(self.actor, scopes)


def _key(where: Any) -> Any:
    """Return a filter as data that is the same for the same filter: a page size and a cursor do not count."""
    if not isinstance(where, msgspec.Struct):
        return where
    data = msgspec.structs.asdict(where)
    return {name: value for name, value in data.items() if name not in _NO_FILTERS}
