"""Requests to one server: connections, retries, and answers as records or errors.

A request is repeated only when that is safe: it never reached the server, the server refused it without doing
anything, or a repeat has the same effect as one request. All tries of a request share one time limit.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

import msgspec

import holdfast
from holdfast.arguments import check_duration
from holdfast.engine.tracing.provider import current_traceparent
from holdfast.errors import HoldfastError, NotAllowed, StoreError, Unavailable, UsageError
from holdfast.escaping import escaped
from holdfast.http.problems import Code
from holdfast.world import World

from .addresses import checked_key, checked_url, is_loopback, warn_of_plain_text
from .operations import OPERATIONS, WORK, Operation
from .refusals import Asked, Problem, error_of

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

EXTRA = (
    "the client of the HTTP API needs the extra `client` (httpx2): pip install '.[client]' in a clone of "
    "Holdfast"
)
CERTIFICATES = "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read"
PROXY = (
    "the proxy in the environment (HTTP_PROXY, HTTPS_PROXY or ALL_PROXY) cannot be used: give the URL of an "
    "HTTP proxy, or name the server in NO_PROXY"
)
CONNECT_SECONDS = 10.0
POOL_SHARE = 0.9  # of the time to connect: the longest wait for a free connection
MOMENT_SECONDS = 0.001  # the shortest time limit
CONNECTIONS, KEPT = 100, 20  # at once; kept open between requests
# Long polls and streams have connections of their own, or a hundred of them would hold up every other call. A
# server gives a key no more than so many.
LONG_CONNECTIONS = 1_000
ANSWER_BYTES = 64 * 1024 * 1024
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 5.0  # the delay before a retry, doubling
LAST_TRY_SECONDS = 0.2  # a retry that has less time left would only hide the answer of the try before it
SAID_MAX = 300
# Answers of proxies in front of a server that is away.
_AWAY = frozenset({502, 503, 504})
# Answers of proxies that have not passed the request on.
_OF_PROXIES = {413: Code.TOO_LARGE, 429: Code.RATE_LIMIT, 431: Code.HEAD_TOO_LARGE}
_CODES = frozenset(Code)
# Refusals after which nothing was done.
_NOTHING_DONE = frozenset({Code.RATE_LIMIT, Code.STREAMS_LIMIT, Code.SHUTTING_DOWN, Code.SERVER_FULL})

Query = Sequence[tuple[str, str]]


class Request(NamedTuple):
    """One request, ready to be sent."""

    operation: Operation
    url: str
    body: bytes | None
    asked: Asked


class Lost(Exception):
    """A request without an answer. sent: the server may have got it."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Transport:
    """The connections to one server, for any number of event loops."""

    def __init__(
        self, url: str, key: str | None, timeout: Any, world: World, *, insecure: bool = False
    ) -> None:
        self.url, self.world = checked_url(url), world
        self._key = None if key is None else checked_key(key)
        if self._key is not None and not insecure:
            warn_of_plain_text(self.url)
        self.timeout_seconds = check_duration("timeout", timeout)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, httpx2.AsyncClient]]
        self._clients = WeakKeyDictionary()  # by whether they are for long requests
        self.headers: dict[str, str] = {}  # of every request

    def request(
        self,
        operation: str,
        *,
        path: Mapping[str, object] | None = None,
        query: Query = (),
        body: Any = None,
        key: str = "",
    ) -> Request:
        """Make a request. body: a record, or its JSON. key: the idempotency key in it, for its errors."""
        known = OPERATIONS.get(operation) or WORK[operation]
        names = {name: str(value) for name, value in (path or {}).items()}
        place = known.path.format_map({name: _segment(value) for name, value in names.items()})
        tail = f"?{urlencode(query, quote_via=quote)}" if query else ""
        text = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        name = next(reversed(names.values()), "")
        asked = Asked(operation=operation, name=name, key=key)
        return Request(known, f"{self.url}{place}{tail}", text, asked)

    async def ask(self, request: Request, answer: type[T], *, wait: float = 0.0, retry: bool = True) -> T:
        """Send the request and return the answer. wait: how long the server may take beyond the time limit.

        Raises the library's errors; Unavailable when there is no answer in time.
        """
        until = self.world.monotonic() + self.timeout_seconds + wait
        tries = 0
        said: Unavailable | None = None  # what the server, or a proxy, has answered: clearer than silence
        while True:
            delay, error = self.delay(tries), HoldfastError()
            try:
                status, text = await self.sent(request, until, long=wait > 0)
            except Lost as lost:
                error = said or self.unreachable(str(lost))
                again = not lost.sent or request.operation.repeatable
            else:
                if 200 <= status < 300:
                    return self.read(text, answer)
                problem = self.problem(status, text)
                error = self.refusal(problem, request.asked)
                said = error if isinstance(error, Unavailable) else None
                again = _may_repeat(problem, request.operation)
                delay = max(delay, problem.retry_after_seconds or 0.0)
            tries += 1
            if not (retry and again) or self.world.monotonic() + delay + LAST_TRY_SECONDS >= until:
                raise error
            await asyncio.sleep(delay)

    def delay(self, tries: int) -> float:
        """Return the delay before the next try, in seconds, with some chance in it."""
        longest: float = min(RETRY_SECONDS * 2 ** min(tries, 10), RETRY_SECONDS_MAX)
        return longest * (0.5 + self.world.chance() / 2)

    async def sent(self, request: Request, until: float, *, long: bool) -> tuple[int, bytes]:
        """Send the request once; return the status and the body of the answer."""
        left = until - self.world.monotonic()
        async with in_time(left), self.opened(request, max(MOMENT_SECONDS, left), long=long) as response:
            return response.status_code, await self._body(response)

    async def _body(self, response: httpx2.Response) -> bytes:
        parts, size = list[bytes](), 0
        async for part in response.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > ANSWER_BYTES:
                raise StoreError(f"the answer of {self.url} has more than {ANSWER_BYTES:,} bytes")
        return b"".join(parts)

    @asynccontextmanager
    async def opened(
        self,
        request: Request,
        read_seconds: float,
        headers: Mapping[str, str] | None = None,
        *,
        long: bool,
    ) -> AsyncIterator[httpx2.Response]:
        """Send the request, and yield the answer while its body arrives. Lost when there is none. long: a
        long poll or a stream.
        """
        library = _library()
        connect = min(CONNECT_SECONDS, read_seconds)
        # A wait for a free connection ends before the time limit, which could not tell that nothing was sent.
        timeout = library.Timeout(read_seconds, connect=connect, pool=POOL_SHARE * connect)
        sent = {"content-type": "application/json"} if request.body is not None else {}
        if trace := current_traceparent():
            sent["traceparent"] = trace
        try:
            with lost_by(long=long):
                async with self._client(long=long).stream(
                    request.operation.method,
                    request.url,
                    content=request.body,
                    headers={**sent, **(headers or {})},
                    timeout=timeout,
                ) as response:
                    yield response
        except library.DecodingError as error:
            raise StoreError(f"the answer of {self.url} cannot be read: {_said(error)}") from None

    def _client(self, *, long: bool) -> httpx2.AsyncClient:
        """Return the connections of this event loop."""
        of_loop = self._clients.setdefault(asyncio.get_running_loop(), {})
        found = of_loop.get(long)
        if found is None:
            most = LONG_CONNECTIONS if long else CONNECTIONS
            found = of_loop[long] = self._made(_library().AsyncClient, most)
        return found

    def blocking(self) -> httpx2.Client:
        """Return new connections for one thread without an event loop. The caller closes them."""
        found: httpx2.Client = self._made(_library().Client, KEPT)
        return found

    def _made(self, kind: Any, most: int) -> Any:
        library = _library()
        agent = {"user-agent": f"holdfast/{holdfast.__version__}", "accept": "application/json"}
        headers = {**agent, **self.headers}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        try:
            # Redirects are not followed: the key must not go to another server. A server on this machine is
            # never asked through a proxy of the environment, which would read the key.
            return kind(
                headers=headers,
                limits=library.Limits(max_connections=most, max_keepalive_connections=KEPT),
                follow_redirects=False,
                verify=library.create_ssl_context(),
                trust_env=not is_loopback(self.url),
            )
        except OSError:  # not with its text: that does not name the file
            raise UsageError(CERTIFICATES) from None
        except (ImportError, ValueError, library.InvalidURL):  # not with its text: it may hold a password
            raise UsageError(PROXY) from None

    def read(self, text: bytes, answer: type[T]) -> T:
        """Return the record of an answer."""
        try:
            return msgspec.json.decode(text or b"null", type=answer)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise StoreError(
                f"{self.url} answers, but not as the HTTP API of this version of Holdfast: "
                f"{escaped(str(error), SAID_MAX)}"
            ) from None

    def problem(self, status: int, text: bytes) -> Problem:
        """Return the refusal. An answer of something else than the API is an error."""
        try:
            problem = msgspec.json.decode(text, type=Problem)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            problem = None
        said = f"{self.url} answers {status}"
        if status in _AWAY and (problem is None or problem.code not in _CODES):
            return Problem(code=Code.STORE_UNAVAILABLE, detail=said)
        if problem is None:
            if status in _OF_PROXIES:
                return Problem(code=_OF_PROXIES[status], detail=said)
            if 300 <= status < 400:
                said = f"{self.url} redirects to another address"
            raise StoreError(f"{said}: this is not the HTTP API of Holdfast; check the URL and its path")
        if problem.code in {Code.NOT_FOUND, Code.METHOD_NOT_ALLOWED}:
            raise StoreError(
                f"{self.url} does not know this operation: check the path of the URL, and the version of "
                "the server"
            )
        return problem

    async def problem_of(self, response: httpx2.Response) -> Problem:
        """Return the refusal of a stream."""
        return self.problem(response.status_code, await self._body(response))

    def refusal(self, problem: Problem, asked: Asked) -> HoldfastError:
        """Return the error of a refusal."""
        if problem.code != Code.UNAUTHENTICATED:
            return error_of(problem, asked)
        if self._key is None:
            return NotAllowed(
                f"{self.url} wants an API key: give key=; the command line takes it from HOLDFAST_KEY"
            )
        return NotAllowed(f"{self.url} refuses the API key: it is unknown, expired or revoked")

    def unreachable(self, why: str) -> Unavailable:
        """Return the error for a server without an answer."""
        return Unavailable(f"the server {self.url} cannot be reached: {why}")

    async def close(self) -> None:
        """Close the connections of this event loop. The next request opens new ones."""
        for found in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await found.aclose()


@contextmanager
def lost_by(*, long: bool) -> Iterator[None]:
    """Turn errors of the network into Lost. long: a long poll or a stream."""
    library = _library()
    try:
        yield
    except library.PoolTimeout as error:
        most = LONG_CONNECTIONS if long else CONNECTIONS
        raise Lost(f"all {most:,} connections of this client are in use", sent=False) from error
    except (library.ConnectError, library.ConnectTimeout) as error:
        raise Lost(_said(error), sent=False) from error
    except library.TransportError as error:
        raise Lost(_said(error), sent=True) from error


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Break off what takes longer: the request is lost."""
    try:
        async with asyncio.timeout(max(MOMENT_SECONDS, seconds)):
            yield
    except TimeoutError:
        raise Lost("it did not answer in time", sent=True) from None


def _may_repeat(problem: Problem, operation: Operation) -> bool:
    if problem.code in _NOTHING_DONE:
        return True
    return operation.repeatable and problem.code in {Code.STORE_UNAVAILABLE, Code.BODY_TOO_SLOW}


def _library() -> Any:
    try:
        import httpx2  # noqa: PLC0415 - an extra, imported when it is needed
    except ImportError as error:
        if error.name != "httpx2":
            raise
        raise UsageError(EXTRA) from None
    return httpx2


def check_installed() -> None:
    """Refuse to go on without the library for HTTP."""
    _library()


def _said(error: BaseException) -> str:
    """Return the reason of an error of the network, in one line."""
    inner: BaseException | None = error
    while inner is not None:  # the cause is more exact than "All connection attempts failed"
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"its TLS certificate is not trusted: {escaped(inner.verify_message, SAID_MAX)}"
        if isinstance(inner, TimeoutError):
            return "it did not answer in time"
        if isinstance(inner, ssl.SSLError):  # its number is no errno
            return "no connection with TLS: write http:// for a server without TLS, and check the port"
        if isinstance(inner, OSError) and inner.errno is not None:
            return escaped(os.strerror(inner.errno) if inner.errno > 0 else inner.strerror or "", SAID_MAX)
        inner = inner.__cause__ or inner.__context__
    said = escaped(str(error), SAID_MAX)
    return said or type(error).__name__


def _segment(name: str) -> str:
    """Return a name as one part of a path. Two dots alone would mean the folder above."""
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")
