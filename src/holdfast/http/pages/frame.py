"""The frame of the pages: it routes requests below `/ui`, checks the visitor, and answers with HTML."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote

from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.http.access import check_scopes
from holdfast.http.parsing import QUERY_FIELDS, Incoming
from holdfast.http.problems import CAUSES, Code, Refusal, extras, refusal_of, request_id
from holdfast.http.routing import PathTable, encoded_path
from holdfast.http.streams import EventStream

from .actions import Actions
from .current import Visitor, Visitors, anonymous
from .live import Views
from .messages import Message, Messages
from .page import Page, Shown, all_pages, extra_page
from .pagecall import PageCall, Place, ui_link
from .preferences import preferences
from .rendering import render
from .settings import PageSettings

if TYPE_CHECKING:
    from holdfast.http.server import Api

log = logging.getLogger("holdfast.http")

STATIC = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    # `no-referrer` would make the Origin of our own forms `null`.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-robots-tag": "noindex",
}
_PROBLEM = extra_page("", "Problem")


class _Asset(NamedTuple):
    data: bytes
    type: str
    version: str


@cache
def assets() -> dict[str, _Asset]:
    """Return the files of the folder `static`, by name."""
    found = {}
    for file in STATIC.iterdir():
        if (type_ := TYPES.get(file.suffix)) is not None:
            data = file.read_bytes()
            found[file.name] = _Asset(data, type_, hashlib.sha256(data).hexdigest()[:12])
    return found


class Pages:
    """The dashboard of one server process."""

    def __init__(self, api: Api, settings: PageSettings) -> None:
        self.api, self.settings = api, settings
        self.visitors, self.messages = Visitors(api), Messages(api)
        self.views = Views(api, self._parts)
        api.on_stop.append(self.views.stop)
        self._actions = Actions(self)
        self._paths = PathTable(all_pages())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request, id_ = Incoming(scope, receive), request_id(self.api.world)
        try:
            response = await self._answered(request, id_)
            if isinstance(response, EventStream):
                await response.begin()
        except ClientDisconnect:
            return
        except Refusal as refusal:
            response = await self.refused(request, id_, refusal)
        except HoldfastError as error:
            if (known := refusal_of(error)).code in {Code.INTERNAL, Code.STORE_UNAVAILABLE}:
                log.warning("request %s of a page failed: %s", id_, error)
            response = await self.refused(request, id_, known)
        except Exception:
            log.exception("request %s of a page failed", id_)
            response = await self.refused(request, id_, Refusal(Code.INTERNAL))
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers["x-request-id"] = id_
        if not request.is_complete and not await request.rest():
            response.headers["connection"] = "close"
        await self.api.unsent.answer(response, request.tenant, scope, receive, send)

    async def _answered(self, request: Incoming, id_: str) -> Response:
        root, path = request.scope.get("root_path", ""), encoded_path(request.scope)
        if path in {"/", "/ui"}:
            return RedirectResponse(ui_link(root, "/", {}), 303)
        below = path.removeprefix("/ui")
        if below.startswith("/static/"):
            return _static(request, below.removeprefix("/static/"))
        if request.method == "POST":
            return await self._actions.posted(request, below, id_)
        if request.method not in {"GET", "HEAD"}:
            raise Refusal(Code.METHOD_NOT_ALLOWED, headers={"allow": "GET, HEAD, POST"})
        if below == "/sign-in":
            return await self._actions.empty_sign_in(request, id_)
        found = self._paths.find(below)
        if found is None:
            raise Refusal(Code.NOT_FOUND, "there is no such page")
        page, params = found
        visitor = await self.visitors.current(request)
        request.tenant = visitor.actor.tenant
        place = Place(root, below, params, query_of(request))
        call = PageCall(self.api, self.settings, page, place, visitor, id_)
        if below == "/" and visitor.actor.scopes.isdisjoint(page.scopes) and (menu := call.menu()):
            return RedirectResponse(call.link(menu[0].path), 303)  # the first page that this visitor may see
        check_scopes(visitor.actor, page.scopes)
        if page.live and "text/event-stream" in request.headers.get("accept", "") and request.method == "GET":
            return EventStream(call, self.views.follow(call))
        return self.html(request, call, await page.handler(call))

    async def form_again(
        self,
        request: Incoming,
        visitor: Visitor,
        id_: str,
        address: str,
        fields: list[tuple[str, str]],
        line: str,
    ) -> Response | None:
        """Return the page of a form that was refused, with a line about it and what was typed; None: there is
        no such page for this visitor.
        """
        root = request.scope.get("root_path", "")
        path, _, query = address.removeprefix(f"{quote(root)}/ui").partition("?")
        found = self._paths.find(path)
        if found is None or visitor.actor.scopes.isdisjoint(found[0].scopes):
            return None
        try:
            place = Place(root, path, found[1], _fields(query.encode()))
            call = PageCall(self.api, self.settings, found[0], place, visitor, id_, fields)
            return self.html(request, call, await call.page.handler(call), Message(True, line))  # noqa: FBT003
        except (Refusal, HoldfastError):
            return None

    async def _parts(self, call: PageCall) -> dict[str, str]:
        """Return the parts of a page as they are now."""
        render(call, await call.page.handler(call), **self._frame(None), said=None)
        return call.parts

    def html(
        self, request: Incoming, call: PageCall, shown: Shown, message: Message | None = None
    ) -> Response:
        """Return a page with a message, or with that of the action before, once."""
        said = self.messages.read(request)
        text = render(call, shown, **self._frame(request), said=message or said)
        response = Response(text, shown.status, media_type="text/html")
        if said is not None:
            self.messages.forget(request, response)
        return response

    def _frame(self, request: Incoming | None) -> dict[str, object]:
        return {
            "settings": self.settings,
            "preferences": preferences(request),
            "asset": {name: one.version for name, one in assets().items()},
        }

    def call_for(self, request: Incoming, visitor: Visitor, id_: str, page: Page = _PROBLEM) -> PageCall:
        """Return a call for a page that is not in the table: a problem, a question, the sign-in."""
        place = Place(request.scope.get("root_path", ""), "/", {}, [])
        return PageCall(self.api, self.settings, page, place, visitor, id_)

    async def refused(self, request: Incoming, id_: str, refusal: Refusal) -> Response:
        """Return the page of a refusal, or the way to the sign-in."""
        root, cause = request.scope.get("root_path", ""), CAUSES[refusal.code]
        is_stream = "text/event-stream" in request.headers.get("accept", "")
        if refusal.code in {Code.UNAUTHENTICATED, Code.ORIGIN_REFUSED} and _is_link_of_others(request):
            # A link in a letter: the browser sends the session's cookie only when our own page loads it.
            call = self.call_for(request, anonymous(), id_)
            return self.html(request, call, Shown("again.html", {}, "One moment"))
        if refusal.code is Code.UNAUTHENTICATED and not is_stream:
            return RedirectResponse(ui_link(root, "/sign-in", {"next": _wanted(request)}), 303)
        if is_stream:
            return Response(status_code=cause.status, headers=extras(refusal))
        visitor = anonymous()
        if refusal.code not in {Code.STORE_UNAVAILABLE, Code.INTERNAL}:
            with suppress(Refusal, HoldfastError):  # the page has no navigation then
                visitor = await self.visitors.current(request)
        detail = refusal.problem(id_, "").detail
        shown = Shown(
            "problem.html", {"cause": cause, "detail": detail, "request": id_}, cause.title, cause.status
        )
        response = self.html(request, self.call_for(request, visitor, id_), shown)
        response.headers.update(extras(refusal))
        return response


def _is_link_of_others(request: Incoming) -> bool:
    """Return True for a page that a person opens by a link on another site."""
    said = request.headers
    return (
        request.method == "GET"
        and said.get("sec-fetch-site") in {"cross-site", "same-site"}
        and said.get("sec-fetch-dest") == "document"
    )


def query_of(request: Incoming) -> list[tuple[str, str]]:
    """Return the fields of the query string, in their order."""
    return _fields(request.scope.get("query_string", b""))


def _fields(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(raw.decode("ascii"), errors="strict", max_num_fields=QUERY_FIELDS)
    except (UnicodeError, ValueError):
        raise Refusal(
            Code.BAD_VALUE, f"the query is not UTF-8, or has more than {QUERY_FIELDS} fields"
        ) from None


def _wanted(request: Incoming) -> str | None:
    """Return the page to go to after the sign-in."""
    if request.method != "GET":
        return None
    raw = request.scope.get("query_string", b"").decode("latin-1")
    return encoded_path(request.scope) + (f"?{raw}" if raw else "")


def _static(request: Incoming, name: str) -> Response:
    asset = assets().get(name)
    if asset is None or request.method not in {"GET", "HEAD"}:
        raise Refusal(Code.NOT_FOUND, "there is no such file")
    is_same = request.scope.get("query_string", b"") == f"v={asset.version}".encode()
    kept = "public, max-age=31536000, immutable" if is_same else "no-cache"
    return Response(asset.data, media_type=asset.type, headers={"cache-control": kept})
