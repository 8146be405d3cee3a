"""URLs of stores as people may see them."""

from __future__ import annotations

POSTGRES = ("postgresql", "postgres")


def shown(url: str, password: str = "") -> str:
    """For people and logs: without the password, or with this word in its place."""
    place, mark, query = url.partition("?")
    scheme, slashes, rest = place.partition("://")
    credentials, at, where = rest.rpartition("@")
    if not slashes and "@" in url:  # no URL, but a password may be in it
        return f"{url.partition(':')[0]}:…@{url.rpartition('@')[2]}"
    if scheme == "sqlite" or (scheme not in POSTGRES and not at):
        return url
    user, colon, _ = credentials.partition(":")
    secret = colon + password if colon and password else ""
    options = [_option(one, password) for one in query.split("&")]
    mark, query = mark if any(options) else "", "&".join(filter(None, options))
    return f"{scheme}{slashes}{user}{secret}{at}{where}{mark}{query}"


def _option(said: str, password: str) -> str:
    name, _, _ = said.partition("=")
    if "password" not in name.lower():
        return said
    return f"{name}={password}" if password else ""
