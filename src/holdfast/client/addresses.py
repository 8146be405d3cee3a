"""The URL of a server and the API key for it: their form, and the ways on which a key may travel."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from holdfast import api_keys
from holdfast.clipped import clipped
from holdfast.errors import UsageError
from holdfast.escaping import safe_logger

log = safe_logger("holdfast.client")
RIGHT = "write https://host, or http://localhost:8080; a path in front of the API may follow"
WARNED_MAX = 1000
_warned: set[str] = set()  # the URLs that this process was warned of


def checked_url(url: Any) -> str:
    """Check the URL of a server, and return it without a slash at its end."""
    if not isinstance(url, str):
        raise UsageError(f"{clipped(url)} is not the URL of a server: {RIGHT}")
    if "@" in url:  # before all else: no other message may show a password
        raise UsageError(
            "the URL of the server has a user or a password: give the API key as key=, or in HOLDFAST_KEY"
        )
    shown = clipped(url.partition("?")[0].partition("#")[0])  # a key may be behind these
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"{shown} is not the URL of a server: {RIGHT}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(f"{shown} is not the URL of a server: {RIGHT}")
    if parts.query or parts.fragment or any(one.isspace() or not one.isprintable() for one in url):
        raise UsageError(f"{shown} has a part that is no address: {RIGHT}")
    return url.rstrip("/")


def checked_key(key: Any) -> str:
    """Check the form of an API key. It is never shown."""
    said = key.strip() if isinstance(key, str) else ""
    if api_keys.parse(said) is None:
        raise UsageError("the API key is not one of Holdfast: it looks like hf_<id>_<secret>")
    return said


def is_loopback(url: str) -> bool:
    """Return True for the URL of a server on this machine."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def warn_of_plain_text(url: str) -> None:
    """Log one line, once for a URL, if the key for this server travels where others may read it."""
    if urlsplit(url).scheme == "https" or is_loopback(url) or url in _warned:
        return
    if len(_warned) < WARNED_MAX:
        _warned.add(url)
    log.warning(
        "the API key goes to %s without encryption: use https://, or give the client insecure=True if the "
        "network encrypts",
        url,
    )
