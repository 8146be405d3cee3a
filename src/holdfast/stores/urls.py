"""URLs of stores as people may see them."""

from __future__ import annotations

import re
from urllib.parse import unquote

POSTGRES = ("postgresql", "postgres")


def shown(url: str, password: str = "") -> str:
    """For people and logs: without the password, or with this word in its place."""
    scheme, slashes, rest = url.partition("://")
    place, mark, query = rest.partition("?")
    if scheme == "sqlite":
        return url
    if not slashes or scheme not in POSTGRES:
        return _strange(url)
    if "@" in query and "@" not in place:  # a password with a ? in it
        return f"{scheme}://…"
    credentials, at, where = place.rpartition("@")
    user, *others = re.split(r":|%3a", credentials, maxsplit=1, flags=re.IGNORECASE)
    secret = f":{password}" if others and password else ""
    options = [_option(one, password) for one in re.split("[&;]", query)]
    mark, query = mark if any(options) else "", "&".join(filter(None, options))
    return f"{scheme}{slashes}{user}{secret}{at}{where}{mark}{query}"


def _strange(text: str) -> str:
    """No URL of ours, but a password may be anywhere in it."""
    if not re.search(r"@|password|pwd", unquote(text), re.IGNORECASE):
        return text
    scheme, slashes, _ = text.partition("://")
    if slashes:
        return f"{scheme}://…"
    first, colon, _ = text.partition(":")
    where = text.rpartition("@")[2]
    return f"{first}:…@{where}" if colon and where.isascii() and "=" not in where else "…"


def _option(said: str, password: str) -> str:
    name = said.partition("=")[0]
    if "password" not in unquote(name).lower():
        return said
    return f"{name}={password}" if password else ""
