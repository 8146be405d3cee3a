"""Cursors: where the next page of a list begins, signed with the signing key of the store.

A cursor holds the operation, the tenant, a digest of the filter, and the last place. It is valid for the same
list only. Nobody can make one without the signing key, so a cursor tells nothing and reaches nothing that its
list would not show.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import UsageError

from .problems import Code, Refusal

CURSOR_MAX = 8_100  # characters: for a gate and a tenant whose names JSON writes with six bytes a character
_MAC_BYTES = 16
_LABEL = b"holdfast cursor v1\0"


class _Place(msgspec.Struct, array_like=True, frozen=True):
    list: str
    tenant: str
    filter: str
    last: tuple[Any, ...]


class Cursors:
    """Makes and reads cursors. `secrets`: the live signing keys of the store, the newest first."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)

    def make(self, list_: str, tenant: str, where: Any, last: Sequence[Any]) -> str:
        """Return the cursor after `last`, for a list of that tenant with that filter."""
        text = msgspec.json.encode(_Place(list_, tenant, _digest(where), tuple(last)))
        return _written(_mac(self._secrets[0], text) + text)

    def read(self, cursor: str, list_: str, tenant: str, where: Any) -> tuple[Any, ...]:
        """Return the last place of the page before; refuse a cursor of another list, filter or tenant."""
        try:
            if len(cursor) > CURSOR_MAX:
                raise UsageError("too long")  # noqa: TRY301 - all bad cursors are answered alike
            whole = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            mac, text = whole[:_MAC_BYTES], whole[_MAC_BYTES:]
            if _written(whole) != cursor:  # Base64 ignores some characters and bits
                raise UsageError("not written here")  # noqa: TRY301
            if not any(hmac.compare_digest(mac, _mac(one, text)) for one in self._secrets):
                raise UsageError("not signed here")  # noqa: TRY301
            place = msgspec.json.decode(text, type=_Place)
        except (Base64Error, UnicodeError, UsageError, msgspec.DecodeError, RecursionError):
            raise Refusal(Code.BAD_CURSOR) from None
        if (place.list, place.tenant, place.filter) != (list_, tenant, _digest(where)):
            raise Refusal(Code.BAD_CURSOR)
        return place.last


def _mac(secret: bytes, text: bytes) -> bytes:
    return hmac.digest(secret, _LABEL + text, "sha256")[:_MAC_BYTES]


def _digest(where: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(where, order="deterministic")).hexdigest()[:32]


def _written(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
