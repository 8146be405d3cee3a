"""URLs of stores, shown to people and logs without passwords."""

from __future__ import annotations

import re
from unicodedata import normalize
from urllib.parse import unquote

POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss", "unix", "valkey", "valkeys")


# Parts of a text: the user of a URL, before a colon; and a possible password without a host after it.
_USER = re.compile(r"//[^:@\s]{0,200}?(?=(?::|%3a)(?!password$|password@host))", re.IGNORECASE)
_NO_HOST = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@'\"\[]{1,200}:)(?![0-9]+\b|password@host)[^\s'\"]+", re.IGNORECASE
)
_OPTION = re.compile(r"((?:password|passwd|pwd)(?:=|%3d))[^\s&;'\"]+", re.IGNORECASE)


# Escapes for characters that have a meaning in URLs.
ESCAPES = "%40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %5B for [, and others in the same way"


def is_readable(netloc: str) -> bool:
    """Return True when drivers can read user, password and hosts. Their own errors quote all of them.

    They refuse brackets around something that is no host, and wide forms of characters that URLs use.
    """
    credentials, usual = netloc.rpartition("@")[0], normalize("NFKC", netloc)
    return (
        netloc.count("[") == netloc.count("]")
        and not {"[", "]"} & {*credentials}
        and all(usual.count(mark) == netloc.count(mark) for mark in "/?#@:")
    )


def shown(url: str, password: str = "") -> str:
    """Return the URL without its password, or with the given word in its place."""
    scheme, slashes, rest = url.partition("://")
    place, mark, query = rest.partition("?")
    if scheme == "sqlite":
        return url
    if not slashes or scheme not in POSTGRES + REDIS:
        return _strange(url)
    if "@" in query and "@" not in place:  # a password with a ? in it
        return f"{scheme}://…"
    credentials, at, where = place.rpartition("@")
    user, *others = re.split(r":|%3a", credentials, maxsplit=1, flags=re.IGNORECASE)
    secret = f":{password}" if others and password else ""
    options = [_option(one, password) for one in re.split("[&;]", query)]
    mark, query = mark if any(options) else "", "&".join(filter(None, options))
    return f"{scheme}{slashes}{user}{secret}{at}{where}{mark}{query}"


def redacted(text: str) -> str:
    """Return a text without the passwords of URLs in it. People may type a URL where none belongs."""
    head, at, tail = text.rpartition("@")
    if at and (user := _USER.search(head)):
        text = f"{head[: user.end()]}:…@{tail}"
    else:
        text = _NO_HOST.sub(r"\1…", text)
    return _OPTION.sub(r"\1…", text)


def _strange(text: str) -> str:
    """Return an unknown URL without any part that may be a password."""
    if not re.search(r"@|password|pwd", unquote(text), re.IGNORECASE):
        return text
    scheme, slashes, _ = text.partition("://")
    if slashes:
        return f"{scheme}://…"
    first, colon, _ = text.partition(":")
    where = text.rpartition("@")[2]
    return f"{first}:…@{where}" if colon and where.isascii() and "=" not in where else "…"


def _option(option: str, password: str) -> str:
    name = option.partition("=")[0]
    if "password" not in unquote(name).lower():
        return option
    return f"{name}={password}" if password else ""
