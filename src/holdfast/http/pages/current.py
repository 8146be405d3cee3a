"""The visitor of a page: who asks, by the session in a cookie, or everyone on a server without keys."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from holdfast import api_keys
from holdfast.errors import HoldfastError
from holdfast.http.access import LOOPBACK, Actor, check_local, host_name, netloc, unauthenticated
from holdfast.http.parsing import Incoming
from holdfast.http.problems import Code, Refusal
from holdfast.http.sessions import hashed
from holdfast.records import AuditWrite

if TYPE_CHECKING:
    from holdfast.http.server import Api

OPEN_SECONDS = 1.0  # between two looks for the first key of an open server
_CSRF = "csrf"


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a page. session: the hash of the session's id; empty on a server without keys."""

    actor: Actor
    session: str
    csrf: str


class Visitors:
    """Finds the visitor of a request. One for each server process."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def current(self, request: Incoming) -> Visitor:
        """Return the visitor. Refusal with the code `unauthenticated`: they have to sign in."""
        api = self._api
        await api.open()
        if api.access.is_open:
            await api.look_for_keys(OPEN_SECONDS)
        if api.access.is_open:
            check_local(request, check_host=api.check_host)
            return self._visitor(api.access.open_actor, "")
        id_ = request.cookies.get(cookie_name(request), "")
        session = await api.access.sessions.find(hashed(id_)) if id_ else None
        actor = None if session is None else await api.access.of_key(session.key_id, session.secret_hash)
        if session is None or actor is None:
            raise unauthenticated()
        api.access.check_rate(actor)
        return self._visitor(msgspec.structs.replace(actor, session=session.id_hash), session.id_hash)

    async def check_sign_ins(self, request: Incoming) -> None:
        """Refuse a sign-in from an address with too many failures, before anything of it is read."""
        await self._api.open()
        self._api.access.sessions.failures.check(_address(request))

    def refused_sign_in(self, request: Incoming) -> str:
        """Return why a sign-in from this address would be refused now; empty: it would not."""
        try:
            self._api.access.sessions.failures.check(_address(request))
        except Refusal as refusal:
            return refusal.detail or ""
        return ""

    async def sign_in(self, request: Incoming, text: str, id_: str) -> str | None:
        """Begin a session with an API key; return its id, or None for a key that is not valid.

        The session that the browser had before ends. id_: of the request.
        """
        api, address = self._api, _address(request)
        await api.open()
        failures = api.access.sessions.failures
        failures.begin(address)
        given = api_keys.parse(text)
        actor = None
        if given is not None:
            try:
                actor = await api.access.of_key(given[0], api_keys.secret_hash(given[1]))
            except HoldfastError:
                failures.succeed(address)  # the store did not answer: that is no failure of the visitor
                raise
        if actor is None:
            return None
        failures.succeed(address)
        if before := request.cookies.get(cookie_name(request), ""):
            await api.access.sessions.end(hashed(before))
        session = await api.access.sessions.begin(actor.key_id, actor.secret_hash)
        await self._note("sign_in", actor, id_)
        return session

    async def sign_out(self, visitor: Visitor, id_: str) -> None:
        """End the session of a visitor."""
        await self._api.access.sessions.end(visitor.session)
        if visitor.actor.key_id:
            await self._note("sign_out", visitor.actor, id_)

    async def _note(self, action: str, actor: Actor, id_: str) -> None:
        entry = AuditWrite(
            tenant=actor.tenant, key_id=actor.key_id, key_name=actor.name, action=action, request=id_
        )
        await self._api.store.note_audit([entry])

    def check_csrf(self, visitor: Visitor, given: str) -> None:
        """Refuse a form that was not made for this visitor."""
        try:
            self._api.signing.cursors.read(given, _CSRF, "", visitor.session)
        except Refusal:
            raise Refusal(Code.ORIGIN_REFUSED, "this form is too old: load the page again") from None

    def _visitor(self, actor: Actor, session: str) -> Visitor:
        csrf = self._api.signing.cursors.make(_CSRF, "", session, ())
        return Visitor(actor=actor, session=session, csrf=csrf)


def _address(request: Incoming) -> str:
    return request.client.host if request.client else ""


def cookie_name(request: Incoming) -> str:
    """Return the name of the session's cookie. Cookies ignore ports: two servers on one host need two."""
    place = f"{request.headers.get('host', '')}{request.scope.get('root_path', '')}"
    return f"holdfast_{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def cookie_options(request: Incoming) -> dict[str, Any]:
    """Return the options of all cookies of the pages: not for scripts, not for other sites, not in clear text
    where there is TLS.
    """
    path = f"{quote(request.scope.get('root_path', ''))}/ui"
    secure = request.scope.get("scheme") == "https"
    return {"path": path, "httponly": True, "samesite": "strict", "secure": secure}


def check_origin(request: Incoming) -> None:
    """Refuse a form that a page of another site has sent. A browser says so; an old one, and one without TLS,
    says only the Origin. Ports do not count, because cookies ignore them, and because proxies drop them. Nor
    does a Host on this machine: many proxies replace it.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in {"same-origin", "none"}:
            raise Refusal(Code.ORIGIN_REFUSED)
        return
    origin, host = request.headers.get("origin"), host_name(request.headers.get("host", ""))
    if origin is not None and host not in LOOPBACK and host_name(netloc(origin)) != host:
        raise Refusal(Code.ORIGIN_REFUSED)


def anonymous() -> Visitor:
    """Return a visitor that may do nothing."""
    actor = Actor(key_id="", name="", tenant="", scopes=frozenset())
    return Visitor(actor=actor, session="", csrf="")
