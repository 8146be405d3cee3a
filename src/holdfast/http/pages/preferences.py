"""Preferences of a visitor: colours and keyboard, kept in a cookie so that they work without script."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import msgspec

from holdfast.http.parsing import Incoming

COOKIE = "holdfast_preferences"
KEPT_SECONDS = 365 * 86400
CHOICES = {"theme": ("auto", "light", "dark"), "keys": ("on", "off")}


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """theme: the colours. keys: whether single keys do something."""

    theme: str = "auto"
    keys: str = "on"

    def changed(self, name: str, value: str) -> Preferences:
        """Return them with one other choice; an unknown one changes nothing."""
        if value not in CHOICES.get(name, ()):
            return self
        return msgspec.structs.replace(self, **{name: value})

    def text(self) -> str:
        """Return the value of the cookie."""
        return urlencode(msgspec.structs.asdict(self))


def preferences(request: Incoming | None) -> Preferences:
    """Return the preferences of a request."""
    found = Preferences()
    given = "" if request is None else request.cookies.get(COOKIE, "")
    for name, value in parse_qsl(given[:200]):
        found = found.changed(name, value)
    return found
