"""Messages: one line after an action, kept in a signed cookie until the next page shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from holdfast.escaping import escaped
from holdfast.http.parsing import Incoming
from holdfast.http.problems import Refusal

from .current import cookie_name, cookie_options

if TYPE_CHECKING:
    from holdfast.http.server import Api

TEXT_MAX = 500  # characters
KEPT_SECONDS = 60
_LIST = "message"


class Message(NamedTuple):
    """A line for the visitor."""

    is_error: bool
    text: str


class Messages:
    """Writes and reads the cookie of messages."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def write(self, request: Incoming, response: Response, text: str, *, is_error: bool = False) -> None:
        """Let the next page show a line."""
        value = self._api.signing.cursors.make(_LIST, "", None, (is_error, escaped(text, TEXT_MAX)))
        response.set_cookie(_name(request), value, max_age=KEPT_SECONDS, **cookie_options(request))

    def read(self, request: Incoming) -> Message | None:
        """Return the line that waits; None: there is none, or it was not written here."""
        if not (value := request.cookies.get(_name(request))):
            return None
        try:
            is_error, text = self._api.signing.cursors.read(value, _LIST, "", None)
        except (Refusal, AssertionError):
            return None
        return Message(bool(is_error), str(text))

    def forget(self, request: Incoming, response: Response) -> None:
        """Show the line no second time."""
        response.delete_cookie(_name(request), **cookie_options(request))


def _name(request: Incoming) -> str:
    return f"{cookie_name(request)}_said"
