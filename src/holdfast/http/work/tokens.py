"""Tokens of leases: the proof that the server gave a lease, signed with the signing key of the store.

A token holds the facts of its lease that later requests need (`Origin`), and the HMAC-SHA-256 over them, the
run and the fence. Nothing about it is stored. On Redis the fence has a random part, so that a fence of
another server process is another text here too.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.wire.items import Origin
from holdfast.wire.values import TOKEN_MAX

_MAC_BYTES = 32
_LABEL = b"holdfast lease v1\0"


class Tokens:
    """Makes and checks tokens. `secrets`: the live signing keys of the store, the newest first."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)

    def make(self, run: UUID, fence: int, origin: Origin) -> str:
        """Return the token of a lease."""
        facts = msgspec.json.encode(origin)
        return _written(_mac(self._secrets[0], run, fence, facts) + facts)

    def read(self, token: str, run: UUID, fence: int) -> Origin | None:
        """Return the facts of a lease; None for a token that was not made for this run and fence."""
        if len(token) > TOKEN_MAX:
            return None
        try:
            whole = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
            mac, facts = whole[:_MAC_BYTES], whole[_MAC_BYTES:]
            # Each of the keys is tried, so that the time does not tell which one has signed.
            known = [hmac.compare_digest(mac, _mac(one, run, fence, facts)) for one in self._secrets]
            if not any(known) or _written(whole) != token:  # Base64 ignores some characters and bits
                return None
            return msgspec.json.decode(facts, type=Origin)
        except (Base64Error, UnicodeError, msgspec.DecodeError):
            return None


def _written(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _mac(secret: bytes, run: UUID, fence: int, facts: bytes) -> bytes:
    return hmac.digest(secret, _LABEL + run.bytes + b"%d\0" % fence + facts, "sha256")
