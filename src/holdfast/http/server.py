"""The ASGI application: it routes requests to operations, and turns answers and errors into responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.contract import AUDIT_BATCH
from holdfast.engine.app.client import StoreClient
from holdfast.engine.live.live import Live
from holdfast.errors import HoldfastError, StoreError, Unavailable
from holdfast.escaping import escaped
from holdfast.records import ANY
from holdfast.shown.text import counted
from holdfast.wire.answers import PROTOCOL

from . import parsing
from .access import OPEN, Access, Actor, check_local, check_scopes
from .audit import Audit
from .call import Call
from .json_answer import HEADERS, JsonAnswer
from .limits import Counted, LargeBodies, Streams
from .operation import WORKER, Operation, all_operations
from .pages.frame import Pages
from .pages.latency import Latencies
from .pages.settings import PageSettings
from .problems import PROBLEMS_PAGE, Code, Refusal, encoded, extras, refusal_of, request_id
from .routing import PathTable, encoded_path
from .signing import Signing
from .streams import EventStream, LargeEvents
from .unsent import Unsent
from .work.keeping import Ring
from .work.work import Work

log = logging.getLogger("holdfast.http")

UPKEEP_SECONDS = 1.0  # a revoked key's streams end within this time and access.REMEMBER_SECONDS
READY_SECONDS = 5.0
TELL_SECONDS = 60.0  # between two lines about requests without a valid key
ROUNDS = 5  # of upkeep, between two looks at rarer things

_VERSION = (b"holdfast-protocol", b"%d" % PROTOCOL)


class Api:
    """The shared parts of one server process: store, access, audit, cursors, and the live reader."""

    def __init__(
        self,
        client: StoreClient,
        *,
        is_open: bool,
        check_host: bool = False,
        until_keys: bool = False,
        streams: Streams | None = None,
        ring: Ring | None = None,
    ) -> None:
        self.client, self.store, self.world = client, client.store, client.world
        self.access = Access(client.store, client.world, is_open=is_open)
        self.check_host, self._until_keys = check_host, until_keys
        self.audit = Audit(client.store, client.world)
        self.streams = streams or Streams()
        self.bodies = parsing.Bodies(client.world)
        # Heartbeats are counted apart: no lease ends because others send large batches.
        self.large_bodies, self.urgent_bodies = LargeBodies(), LargeBodies()
        self.unsent, self.large_events = Unsent(client.world), LargeEvents()
        self.live = Live(client.store, client.world)
        self.latencies = Latencies(client.store)
        self.signing = Signing(client.store, client.world)
        self.work = Work(client.store, client.world, self.signing, ring)
        self.stopping = False
        self.on_stop: list[Callable[[], None]] = []  # functions that end what others have begun with it
        self._looked_at, self._told_at = float("-inf"), client.world.monotonic()
        self._upkeep: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Open the store and read the signing keys. It does nothing when that is done."""
        if self.signing.is_read:
            return
        async with self._opening:
            await self.store.open()
            await self.signing.read()
            if self._upkeep is None:
                self._upkeep = self.world.spawn(self._keep_up(), "http upkeep")

    async def _keep_up(self) -> None:
        for round_ in count():
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                await self.upkeep(rarer=round_ % ROUNDS == 0)
            except StoreError as error:
                log.warning("the store did not answer: %s", error)
            except Exception:  # otherwise streams of revoked keys would go on
                log.exception("the upkeep of the API failed; it is tried again")

    async def upkeep(self, *, rarer: bool = False) -> None:
        """End streams of revoked keys. rarer: note used keys, and learn of new signing keys."""
        await self.look_for_keys()
        for actor in self.streams.watched():
            if not await self.access.is_live(actor):
                self.streams.stop(actor)
        if not rarer:
            return
        used = self.access.used()
        for at in range(0, len(used), AUDIT_BATCH):
            await self.store.use_keys(used[at : at + AUDIT_BATCH])
        await self.signing.read()
        await self.audit.flush_refusals()
        if (now := self.world.monotonic()) >= self._told_at + TELL_SECONDS:
            refused_, self.access.refused, self._told_at = self.access.refused, 0, now
            if refused_:
                log.warning("%s without a valid key in the last minute", counted(refused_, "request"))

    async def look_for_keys(self, seconds: float = 0.0) -> None:
        """Close an open server when the store has a key. seconds: unless it was done so short a time ago."""
        now = self.world.monotonic()
        if not (self._until_keys and self.access.is_open) or now < self._looked_at + seconds:
            return
        if await self.store.keys(ANY, 1):
            self.access.is_open = False  # the first key was created
        self._looked_at = now

    def problems_page(self, request: Request) -> str:
        """Return the address of the page that explains the codes of problems."""
        return problems_page(request)

    async def ready(self) -> None:
        """Check that the store answers."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self.open()
                await self.store.now()
        except TimeoutError:
            raise Unavailable("the store does not answer") from None

    async def stop(self) -> None:
        """End streams and long polls at once, and start no new ones."""
        self.stopping = True
        for one in self.on_stop:
            one()
        self.unsent.stop()
        await self.work.stop()
        await self.live.close()

    async def close(self) -> None:
        """Stop, and end the upkeep. The store stays open: it belongs to the app."""
        await self.stop()
        await self.work.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await self._upkeep
            self._upkeep = None


class Endpoint:
    """One operation as an ASGI application."""

    def __init__(self, api: Api, operation: Operation) -> None:
        self._api, self._operation = api, operation
        self._headers = [_VERSION] if operation.part == WORKER else []
        self._scopes, takes = operation.scopes, operation.takes.get
        self._path, self._query = takes("path"), takes("query")
        self._asked, self._body = takes("headers"), takes("body")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = parsing.Incoming(scope, receive)
        id_ = request_id(self._api.world)
        actor: Actor | None = None
        call: Call | None = None
        try:
            actor = await self._actor(request)
            call = Call(self._api, self._operation, actor, request, id_)
            self._api.access.check_rate(actor, urgent=self._operation.urgent)
            check_scopes(actor, self._operation.scopes)
            large = self._api.urgent_bodies if self._operation.urgent else self._api.large_bodies
            with large.of(actor, request, self._operation.body_bytes) as counted:
                response = await self._answered(call, counted)
            if isinstance(response, EventStream):
                await response.begin()
        except ClientDisconnect:
            return  # nobody waits for the answer
        except Refusal as refusal:
            response = refused(_marked(refusal, call), request, id_)
            await self._note_refusal(actor, call, refusal)
        except HoldfastError as error:
            known = refusal_of(error)
            if known.code is Code.INTERNAL:
                log.exception("request %s failed", id_)
            if known.code is Code.STORE_UNAVAILABLE:
                log.warning("request %s: the store did not answer: %s", id_, error)
            response = refused(_marked(known, call), request, id_)
            await self._note_refusal(actor, call, known)
        except Exception:
            log.exception("request %s failed", id_)
            response = refused(_marked(Refusal(Code.INTERNAL), call), request, id_)
        if not isinstance(response, JsonAnswer):
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        response.raw_headers += [(b"x-request-id", id_.encode()), *self._headers]
        await _close_unread(response, request)
        await self._api.unsent.answer(response, "" if actor is None else actor.tenant, scope, receive, send)

    async def _actor(self, request: Request) -> Actor:
        if not self._scopes:
            return OPEN
        if not self._api.signing.is_read:
            await self._api.open()
        access = self._api.access
        if access.is_open:
            await self._api.look_for_keys(UPKEEP_SECONDS)
        if access.is_open:
            check_local(request, check_host=self._api.check_host)
        return await access.actor(request)

    async def _answered(self, call: Call, counted: Counted | None) -> Response:
        operation, request = self._operation, call.request
        given: dict[str, Any] = {}
        if self._path is not None:
            given["path"] = parsing.parsed_path(request.path_params, self._path)
        if self._query is not None:
            given["query"] = parsing.parsed_query(request, self._query)
        elif self._scopes:
            parsing.parsed_query(request, parsing.NoQuery)
        if self._asked is not None:
            given["headers"] = parsing.parsed_headers(request, self._asked)
        if operation.method != "GET":
            body = await self._read(request, counted)
            if self._body is not None:
                given["body"] = body
        answer = await operation.handler(call, **given)
        if operation.audited:
            await self._api.audit.done(call)
        if isinstance(answer, Response):
            return answer
        if operation.answer is None:
            return Response(status_code=204)
        return JsonAnswer(msgspec.json.encode(answer), call.status)

    async def _read(self, request: parsing.Incoming, counted: Counted | None) -> Any:
        body = await self._api.bodies.read(request, self._operation)
        if counted is not None:
            counted.become(request.size)
        return body

    async def _note_refusal(self, actor: Actor | None, call: Call | None, refusal: Refusal) -> None:
        """Note a refusal of a known key in the audit log; the answer is sent whether that works or not."""
        if actor is None or call is None or not actor.key_id:
            return
        if refusal.code is Code.STORE_UNAVAILABLE:
            return  # the log is in that store
        try:
            await self._api.audit.refused(call, refusal)
        except HoldfastError as error:
            log.warning("the audit log could not be written: %s", error)


class HttpApi:
    """The HTTP API as an ASGI application. It can be mounted under any prefix."""

    def __init__(self, api: Api, pages: PageSettings | None = None) -> None:
        self.api = api
        self.pages = None if pages is None else Pages(api, pages)
        by_path: dict[str, dict[str, Endpoint]] = {}
        for one in all_operations().values():
            by_path.setdefault(one.path, {})[one.method] = Endpoint(api, one)
        self._paths = PathTable(by_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._routed(scope, receive, send)
        else:  # no websockets here
            await send({"type": "websocket.close", "code": 1000})

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = encoded_path(scope)
        for_pages = path.startswith("/ui/") or path == "/ui" or (path in {"", "/"} and _is_browser(scope))
        if self.pages is not None and for_pages:
            await self.pages(scope, receive, send)
            return
        found = self._paths.find(path)
        if found is None:
            await self._refuse(Refusal(Code.NOT_FOUND), scope, receive, send)
            return
        endpoints, scope["path_params"] = found
        method = scope["method"]
        endpoint = endpoints.get("GET" if method == "HEAD" else method)
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        allowed = ", ".join([*endpoints, *(["HEAD"] if "GET" in endpoints else [])])
        detail = f"{escaped(method, 20)} is not allowed here"
        refusal = Refusal(Code.METHOD_NOT_ALLOWED, detail, headers={"allow": allowed})
        await self._refuse(refusal, scope, receive, send)

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        id_ = request_id(self.api.world)
        request = parsing.Incoming(scope, receive)
        response = refused(refusal, request, id_)
        response.headers["x-request-id"] = id_
        await _close_unread(response, request)
        await response(scope, receive, send)

    async def close(self) -> None:
        """End streams, long polls and the upkeep; the store stays open.

        An application that has mounted the API calls this when it stops: a mounted one is not told.
        """
        await self.api.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Close the API when the server stops."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def _is_browser(scope: Scope) -> bool:
    """Return True for a person who has typed the address of the server."""
    accepts = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    return scope["method"] in {"GET", "HEAD"} and b"text/html" in accepts


def _marked(refusal: Refusal, call: Call | None) -> Refusal:
    """Return the refusal, which says now whether the request may be sent again."""
    refusal.is_repeatable = call is None or call.is_repeatable
    return refusal


async def _close_unread(response: Response, request: parsing.Incoming) -> None:
    """Let an answer end the connection if it is given before the body of the request has come."""
    if not request.is_complete and "connection" not in response.headers and not await request.rest():
        response.raw_headers.append((b"connection", b"close"))


def problems_page(request: Request) -> str:
    """Return the address of the page that explains the codes of problems, under the prefix of the API."""
    return f"{request.scope.get('root_path', '')}{PROBLEMS_PAGE}"


def refused(refusal: Refusal, request: Request, id_: str) -> Response:
    """Return the response of a refusal."""
    problem = refusal.problem(id_, problems_page(request))
    return Response(
        encoded(problem),
        problem.status,
        media_type="application/problem+json",
        headers={**HEADERS, **extras(refusal)},
    )


def asgi(
    client: StoreClient,
    *,
    open: bool = False,
    check_host: bool = False,
    until_keys: bool = False,
    streams: Streams | None = None,
    ring: Ring | None = None,
    pages: bool = True,
    environment: str = "",
    colour: str = "grey",
) -> HttpApi:
    """Return the HTTP API of an app as an ASGI application, to be mounted under any prefix.

    Each request needs an API key. open=True lets everyone in as an operator: only behind a login of your own.
    The app's store is opened with the first request, and stays open. check_host: an open server answers only
    to loopback names. until_keys: an open server wants a key as soon as the store has one. ring: wakes the
    keeper of the program, for workers that work through the API; None: the API runs one for them.
    pages: also serve the dashboard, under `/ui/`. environment, colour: shown above each page.
    """
    settings = PageSettings(environment=environment, colour=colour)
    api = Api(client, is_open=open, check_host=check_host, until_keys=until_keys, streams=streams, ring=ring)
    return HttpApi(api, settings if pages else None)
