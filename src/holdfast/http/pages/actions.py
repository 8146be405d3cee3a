"""Actions: forms that call operations of the HTTP API, the sign-in, and the choice of preferences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.responses import RedirectResponse, Response

from holdfast.http.operation import API, Operation, all_operations
from holdfast.http.parsing import Incoming, is_list, read_bytes
from holdfast.http.problems import CAUSES, Code, Refusal, extras

from .current import Visitor, anonymous, check_origin, cookie_name, cookie_options
from .once import Once
from .page import ANSWERS, SAID, Shown, extra_page
from .pagecall import ui_link
from .preferences import COOKIE, KEPT_SECONDS, preferences
from .run.param_form import composed

if TYPE_CHECKING:
    from .frame import Pages

FORM_BYTES = 4 * 2**20
SHORT_FORM_BYTES = 16 * 1024  # of the forms that call no operation
FORM_FIELDS = 500
_ID = "%7Bid%7D"  # in the address to go to: it stands for the id of what the action has made
_SIGN_IN, _CONFIRM = extra_page("/sign-in", "Sign in"), extra_page("/do", "Are you sure?")


class Actions:
    """Answers the POST requests of the pages."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._once = Once(pages.api)

    async def posted(self, request: Incoming, path: str, id_: str) -> Response:
        """Answer one form. Its body is read when the visitor is known, or may try to sign in: so nobody else
        can keep the server busy with it.
        """
        check_origin(request)
        if path == "/sign-in":
            return await self._limited_sign_in(request, id_)
        visitor = await self._pages.visitors.current(request)
        request.tenant = visitor.actor.tenant
        is_action = path.startswith("/do/")
        most = FORM_BYTES if is_action else SHORT_FORM_BYTES
        with self._pages.api.large_bodies.of(visitor.actor, request, most) as counted:
            fields = await self._form(request, most)
            if counted is not None:
                counted.become(request.size)
            return await self._posted(request, visitor, path, fields, id_)

    async def _posted(
        self, request: Incoming, visitor: Visitor, path: str, fields: list[tuple[str, str]], id_: str
    ) -> Response:
        self._pages.visitors.check_csrf(visitor, _one(fields, "csrf"))
        if path == "/sign-out":
            return await self._sign_out(request, visitor, id_)
        if path == "/preferences":
            return self._prefer(request, fields)
        if not path.startswith("/do/"):
            raise Refusal(Code.METHOD_NOT_ALLOWED, headers={"allow": "GET, HEAD"})
        return await self._do(request, visitor, path.removeprefix("/do/"), fields, id_)

    async def _form(self, request: Incoming, most: int) -> list[tuple[str, str]]:
        """Read the fields of a form. Many bytes are parsed in a thread."""
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/x-www-form-urlencoded":
            raise Refusal(Code.BAD_VALUE, "a form is sent as application/x-www-form-urlencoded")
        text = await read_bytes(request, most)
        request.size = len(text)
        return await self._pages.api.bodies.apart(len(text), fields_of, text)

    async def _do(
        self, request: Incoming, visitor: Visitor, name: str, fields: list[tuple[str, str]], id_: str
    ) -> Response:
        operation = all_operations().get(name)
        if operation is None or operation.method == "GET" or operation.part != API or not operation.scopes:
            raise Refusal(Code.NOT_FOUND, "there is no such action")
        back = safe_back(request, _one(fields, "back"))
        if (question := _one(fields, "confirm")) and not _one(fields, "sure"):
            call = self._pages.call_for(request, visitor, id_, _CONFIRM)
            kept = [(key, value) for key, value in fields if key != "csrf"]
            kept += [] if _one(fields, "once") else [("once", id_)]
            data = {"question": question, "fields": kept, "operation": name}
            data["back"] = self._form_page(request, fields)
            return self._pages.html(request, call, Shown("confirm.html", data))
        try:
            read = await self._pages.api.bodies.apart(request.size, given, operation, fields)
            answer = await self._once.answer(operation, visitor, fields, read, id_)
        except Refusal as refusal:
            if refusal.code is Code.UNAUTHENTICATED:
                raise
            return await self._refused(request, visitor, id_, fields, refusal)
        if name in ANSWERS:
            call = self._pages.call_for(request, visitor, id_)
            return self._pages.html(request, call, ANSWERS[name](answer, back))
        id_of = getattr(answer, "id", None)
        target = back.replace(_ID, quote(str(id_of), safe="")) if id_of else self._form_page(request, fields)
        response = RedirectResponse(target if _ID in back else back, 303)
        line = SAID[name](answer) if name in SAID else _one(fields, "said") or f"{name.strip('_')}: done"
        if getattr(answer, "created", None) is False:
            line = "This form was sent before: this is what it started."
        self._pages.messages.write(request, response, line)
        return response

    async def _refused(
        self, request: Incoming, visitor: Visitor, id_: str, fields: list[tuple[str, str]], refusal: Refusal
    ) -> Response:
        """Answer with the page of the form: it says why, and has what was typed."""
        address, line = self._form_page(request, fields), refusal.problem(id_, "").detail
        response = await self._pages.form_again(request, visitor, id_, address, fields, line)
        if response is None:  # the page is not there any more, or not for this visitor
            response = RedirectResponse(address, 303)
            self._pages.messages.write(request, response, line, is_error=True)
            return response
        response.status_code = CAUSES[refusal.code].status
        response.headers.update(extras(refusal))
        return response

    def _form_page(self, request: Incoming, fields: list[tuple[str, str]]) -> str:
        """Return the address of the page on which a form stands: it is not always where the form leads to."""
        address = safe_back(request, _one(fields, "page") or _one(fields, "back"))
        return address if _ID not in address else safe_back(request, "")

    async def empty_sign_in(self, request: Incoming, id_: str) -> Response:
        """Return the page of the sign-in for somebody who comes to it."""
        error = self._pages.visitors.refused_sign_in(request)
        return await self.sign_in_page(request, id_, request.query_params.get("next", ""), error)

    async def sign_in_page(
        self, request: Incoming, id_: str, wanted: str = "", error: str = "", status: int = 200
    ) -> Response:
        """Return the page of the sign-in. wanted: the page to go to after it."""
        data = {"error": error, "next": wanted}
        call = self._pages.call_for(request, anonymous(), id_, _SIGN_IN)
        return self._pages.html(request, call, Shown("sign_in.html", data, status=status))

    async def _limited_sign_in(self, request: Incoming, id_: str) -> Response:
        """Answer a sign-in; after too many failures with its page, which says how long to wait."""
        wanted = ""
        try:
            await self._pages.visitors.check_sign_ins(request)
            fields = await self._form(request, SHORT_FORM_BYTES)
            wanted = _one(fields, "next")
            return await self._sign_in(request, fields, id_)
        except Refusal as refusal:
            if refusal.code is not Code.RATE_LIMIT:
                raise
            response = await self.sign_in_page(request, id_, wanted, refusal.detail, 429)
            response.headers.update(extras(refusal))
            return response

    async def _sign_in(self, request: Incoming, fields: list[tuple[str, str]], id_: str) -> Response:
        wanted = _one(fields, "next")
        session = await self._pages.visitors.sign_in(request, _one(fields, "key").strip(), id_)
        if session is None:
            words = "This API key is unknown, expired or revoked."
            return await self.sign_in_page(request, id_, wanted, words, 403)
        root = quote(request.scope.get("root_path", ""))
        response = RedirectResponse(safe_back(request, f"{root}{wanted}"), 303)
        response.set_cookie(cookie_name(request), session, **cookie_options(request))
        return response

    async def _sign_out(self, request: Incoming, visitor: Visitor, id_: str) -> Response:
        await self._pages.visitors.sign_out(visitor, id_)
        response = RedirectResponse(ui_link(request.scope.get("root_path", ""), "/sign-in", {}), 303)
        response.delete_cookie(cookie_name(request), **cookie_options(request))
        return response

    def _prefer(self, request: Incoming, fields: list[tuple[str, str]]) -> Response:
        chosen = preferences(request)
        for name, value in fields:
            chosen = chosen.changed(name, value)
        response = RedirectResponse(safe_back(request, _one(fields, "back")), 303)
        response.set_cookie(COOKIE, chosen.text(), max_age=KEPT_SECONDS, **cookie_options(request))
        return response


def fields_of(text: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form."""
    try:
        return parse_qsl(
            text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS
        )
    except (UnicodeError, ValueError):
        raise Refusal(
            Code.BAD_VALUE, f"the form is not UTF-8, or has more than {FORM_FIELDS} fields"
        ) from None


def safe_back(request: Incoming, given: str) -> str:
    """Return the address to go to after a form: a page of ours, or the first page."""
    root = quote(request.scope.get("root_path", ""))
    if given.startswith(f"{root}/ui/") and given.isprintable() and "\\" not in given:
        return quote(given, safe="/?&=%~-._+:,;@!$'()*")
    return f"{root}/ui/"


def given(operation: Operation, fields: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return path, query and body of an operation from the fields of a form. Empty fields are left out.

    A field whose type is neither a text nor a number is JSON; a list is a field that is repeated. A field
    `null.NAME` makes a null in the body. Fields of `param_form` make the params.
    """
    found: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}}
    for key, value in fields:
        where, _, name = key.partition(".")
        if where == "null":
            found["body"][name] = msgspec.Raw(b"null")
        if where not in found or not name or value == "":
            continue
        hint = _hints(operation, where).get(name, str)
        read = value.replace("\r\n", "\n") if _is_plain(hint) else _json(name, value)
        if _is_plain(hint) and is_list(hint):
            found[where].setdefault(name, []).append(read)
        else:
            found[where][name] = read
    if (params := composed(fields)) is not None:
        found["body"]["params"] = params
    return found


def _hints(operation: Operation, where: str) -> Mapping[str, Any]:
    return get_type_hints(operation.takes[where]) if where in operation.takes else {}


def _is_plain(hint: Any) -> bool:
    """Return True for a type whose values are written as one text, or as a list of them."""
    if args := [one for one in get_args(hint) if one not in {type(None), msgspec.UnsetType, Ellipsis}]:
        return get_origin(hint) is not dict and _is_plain(args[0])
    return not (
        hint in {dict, Any, msgspec.Raw} or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))
    )


def _json(name: str, text: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refusal(Code.BAD_VALUE, f"{name}: this is not JSON: {error}") from None
    return msgspec.Raw(text.encode())


def _one(fields: list[tuple[str, str]], name: str) -> str:
    return next((value for key, value in fields if key == name), "")
