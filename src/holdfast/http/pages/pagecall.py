"""A call of a page: the visitor, the address, and the operations that the page may ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from holdfast.arguments import ALL_TENANTS
from holdfast.http.access import Actor, tenant_for
from holdfast.http.operation import all_operations
from holdfast.records import ANY, DEFAULT_TENANT, Scope, Tenant, moment
from holdfast.shell import line_of
from holdfast.shown.text import short

from .inside import ask
from .latency import Latencies
from .once import MAKING
from .page import Page, menu_pages

if TYPE_CHECKING:
    from holdfast.http.server import Api

    from .current import Visitor
    from .settings import PageSettings


class Place:
    """An address below `/ui`: what makes two views the same, together with the rights of the visitor."""

    def __init__(self, root: str, path: str, params: Mapping[str, str], query: list[tuple[str, str]]) -> None:
        self.root, self.path, self.params, self.query = root, path, params, query

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.root, self.path, tuple(self.query)


class PageCall:
    """One look at a page. A handler gets it, and templates have it as `page`."""

    def __init__(
        self,
        api: Api,
        settings: PageSettings,
        page: Page,
        place: Place,
        visitor: Visitor,
        id_: str,
        posted: Sequence[tuple[str, str]] = (),
    ) -> None:
        """posted: the fields of a form of this page that was refused: it is shown again as it was sent."""
        self._posted, self._form = posted, ""
        self.api, self.settings, self.page, self.place, self.visitor = api, settings, page, place, visitor
        self.id = id_
        self.actor: Actor = visitor.actor
        self.parts: dict[str, str] = {}  # filled while the template is rendered
        self.now: datetime = moment(api.world.now())
        self.csrf = visitor.csrf  # the token of all forms on the page
        # Set by a handler: a view that is slow, or of a thing that is gone, is not read again each second.
        self.is_slow = self.is_gone = False

    @property
    def is_live(self) -> bool:
        """Whether the parts of the page are sent again as they change."""
        live = self.page.live
        if self.is_slow or self.is_gone:
            return False
        return live if isinstance(live, bool) else live(self)

    @property
    def path(self) -> Mapping[str, str]:
        """The parameters of the path."""
        return self.place.params

    @property
    def tenant(self) -> str | None:
        """The tenant that an operator has named; None: the visitor's own."""
        return self.one("tenant")

    @property
    def only_tenant(self) -> str:
        """The option for a command that is about all tenants without it; empty: all are looked at."""
        named = self.tenant or self.actor.tenant
        return "" if named == ALL_TENANTS else line_of("--tenant", named)

    @property
    def own_tenant(self) -> str:
        """The option for a command that shows all tenants without it, or changes `default`."""
        return "" if (self.tenant or self.actor.tenant) == DEFAULT_TENANT else self.only_tenant

    @property
    def scope(self) -> Tenant:
        """The tenant that is looked at, as the library names it. Refusal: the visitor may not see it."""
        named = tenant_for(self.actor, self.tenant)
        return ANY if named == ALL_TENANTS else named

    @property
    def latencies(self) -> Latencies:
        """The measured times between wake-ups and claims."""
        return self.api.latencies

    def one(self, name: str) -> str | None:
        """Return the last value of a field of the query string; None if it is missing or empty."""
        return next((value for key, value in reversed(self.place.query) if key == name and value), None)

    def all(self, name: str) -> list[str]:
        """Return all values of a field of the query string, without empty ones."""
        return [value for key, value in self.place.query if key == name and value]

    async def ask(
        self,
        operation: str,
        *,
        path: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operation of the API, for the tenant that is looked at; return its answer."""
        takes = all_operations()[operation].takes
        if "query" in takes and "tenant" in takes["query"].__struct_fields__:
            query = {"tenant": self.tenant, **(query or {})}
        return await ask(self.api, self.actor, self.id, operation, path=path, query=query, body=body)

    def can(self, operation: str) -> bool:
        """Return True if the visitor's scopes allow an operation."""
        scopes = all_operations()[operation].scopes
        return not scopes or not self.actor.scopes.isdisjoint(scopes)

    def makes(self, operation: str) -> bool:
        """Return True for an operation whose form has a token, so that it counts once."""
        return operation in MAKING

    def has(self, scope: str) -> bool:
        """Return True if the visitor has a scope, such as `payloads.read`."""
        return self.actor.has(Scope(scope))

    def menu(self) -> list[Page]:
        """Return the pages of the navigation that the visitor may see."""
        return [one for one in menu_pages() if not self.actor.scopes.isdisjoint(one.scopes)]

    def link(self, path: str, **fields: Any) -> str:
        """Return the address of a page: under the mount's prefix, and for the tenant that is looked at."""
        return ui_link(self.place.root, path, {"tenant": self.tenant, **fields})

    def run_link(self, run: Any) -> str:
        """Return the address of a run's page."""
        return self.link(f"/runs/{run}")

    def here(self, **changes: Any) -> str:
        """Return the address of this page; changes: fields of the query that are replaced, or None."""
        kept = [(name, value) for name, value in self.place.query if name not in changes]
        return ui_link(self.place.root, self.place.path, [*kept, *changes.items()])

    def asset(self, name: str, versions: Mapping[str, str]) -> str:
        """Return the address of a file of the folder `static`."""
        return f"{quote(self.place.root)}/ui/static/{name}?v={versions.get(name, '')}"

    def segment(self, name: Any) -> str:
        """Return a name as one encoded segment of a path."""
        return quote(str(name), safe="")

    def short(self, run: Any) -> str:
        """Return the end of an id, as tables show it."""
        return short(run)

    def begin_form(self, operation: str, path: Mapping[str, Any], body: Mapping[str, Any]) -> str:
        """Return the name of a form, which no other form of the page has. `typed` is about this form then."""
        parts = [operation, *path.values(), *(body[name] for name in ("step", "topic") if name in body)]
        self._form = " ".join(map(str, parts))
        return self._form

    @property
    def is_refilled(self) -> bool:
        """Whether the form that has begun is the one that was refused."""
        return bool(self._posted) and ("form", self._form) in self._posted

    def typed(self, name: str, text: Any = "") -> Any:
        """Return what was typed into a field of the form that has begun; text: if it was not sent yet."""
        if not self.is_refilled:
            return text
        return next((value for key, value in self._posted if key == name), "")

    def chose(self, name: str, value: Any) -> bool:
        """Return True for a choice or a tick that was sent with the form that has begun."""
        return self.is_refilled and (name, str(value)) in self._posted

    def part(self, id_: str, tag: str = "div", classes: str = "", *, caller: Any) -> Markup:
        """Return an element that is sent again when it changes; used as `{% call page.part("rows") %}`."""
        inner = self.parts[id_] = str(caller())
        made = Markup('<{0} id="{1}" class="{2}" data-part>{3}</{0}>')
        return made.format(tag, id_, classes, Markup(inner))  # noqa: S704


def ui_link(root: str, path: str, fields: Mapping[str, Any] | list[tuple[str, Any]]) -> str:
    """Return an address below `/ui`. path: encoded (see `segment`). Empty fields are left out."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    flat: list[tuple[str, str]] = []
    for name, value in pairs:
        for one in value if isinstance(value, list | tuple) else [value]:
            if one not in {None, "", False}:
                flat += [(name, "true" if one is True else str(one))]
    return f"{quote(root)}/ui{path}" + (f"?{urlencode(flat)}" if flat else "")
