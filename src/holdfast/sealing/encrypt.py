"""Encryption: AES-256-GCM with named keys. A value is bound to its place and opens nowhere else."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from holdfast.errors import UnknownKey, UsageError, WrongKey
from holdfast.escaping import escaped

from .hooks import Where

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
ENVIRONMENT = "HOLDFAST_KEYS"
KEY_SHOWN = 64  # characters
KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
DIGEST = b"holdfast: digest of a start"
MAKE_ONE = "make one with Encrypt.new_key()"


class Encrypt:
    """AES-256-GCM. New values are sealed under the newest key; all keys open.

    `accept_plain`: take values that are not encrypted as they are, while older ones are still about.
    """

    name = "aes256gcm"

    def __init__(
        self, keys: Mapping[str, bytes | str], newest: str | None = None, *, accept_plain: bool = False
    ) -> None:
        if not keys or not isinstance(keys, Mapping):
            # It may be a key, so it is not shown.
            raise UsageError(f"Encrypt takes keys by their ids, {{'2026-11': key}}: {MAKE_ONE}")
        if newest is None and len(keys) > 1:
            raise UsageError(f"Encrypt has several keys: say with newest= which one seals: {_listed(keys)}")
        self._newest = next(iter(keys)) if newest is None else newest
        if self._newest not in keys:
            raise UsageError(f"Encrypt(newest={newest!r}): there is no such key, only {_listed(keys)}")
        self.optional = accept_plain
        aesgcm, self._invalid = _library()
        known = {id_: _key(id_, key) for id_, key in keys.items()}
        self._ciphers = {id_: aesgcm(key) for id_, key in known.items()}
        newest_first = sorted(known, key=lambda id_: id_ != self._newest)
        # Separate keys: a digest must not be made with the key that encrypts.
        self._digest_keys = [hmac.digest(known[id_], DIGEST, "sha256") for id_ in newest_first]

    def __repr__(self) -> str:
        """Show the names of the keys, never the keys."""
        return f"Encrypt({_listed(self._ciphers)}; newest={self._newest!r})"

    @classmethod
    def from_env(cls, variable: str = ENVIRONMENT, *, accept_plain: bool = False) -> Self:
        """Read keys from an environment variable: `id=base64`, the newest first, separated by blanks or
        commas."""
        words = os.environ.get(variable, "").replace(",", " ").split()
        if not words:
            raise UsageError(f"{variable} is not set: 2026-11=<base64 of 32 bytes>; {MAKE_ONE}")
        if not all(KEY_ID.fullmatch(one.partition("=")[0]) and one.partition("=")[2] for one in words):
            raise UsageError(f"{variable}: each key is id=base64, as in 2026-11=<base64 of 32 bytes>")
        keys = {id_: key for id_, _, key in (one.partition("=") for one in words)}
        if len(keys) < len(words):
            raise UsageError(
                f"{variable} names a key twice: {', '.join(one.partition('=')[0] for one in words)}"
            )
        return cls(keys, newest=words[0].partition("=")[0], accept_plain=accept_plain)

    @staticmethod
    def new_key() -> str:
        """Return a new key as base64 text."""
        return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()

    def seal(self, value: bytes, where: Where) -> tuple[str, bytes]:
        """Encrypt with the newest key. The result begins with a random nonce."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = self._ciphers[self._newest].encrypt(nonce, value, where.bound)
        return f"{self.name}:{self._newest}", nonce + sealed

    def open(self, how: str, value: bytes, where: Where) -> bytes:
        """Decrypt with the key that the value names. UnknownKey; WrongKey when the value does not belong
        to this place."""
        id_ = how.partition(":")[2]
        cipher = self._ciphers.get(id_)
        if cipher is None:
            # The name may be anything, because anyone can write an envelope. So it is escaped.
            raise UnknownKey(
                f"{where} is sealed under key {escaped(repr(id_), 2 * KEY_SHOWN)}, and here are only "
                f"{_listed(self._ciphers)}: add that key to Encrypt(…)",
                escaped(id_, KEY_SHOWN),
            )
        try:
            return cipher.decrypt(value[:NONCE_BYTES], value[NONCE_BYTES:], where.bound)
        except (self._invalid, ValueError):
            raise WrongKey(
                f"{where} does not open with key {id_!r}: the key's bytes are others, or the value was "
                f"altered, or moved here from elsewhere",
                id_,
            ) from None

    def digests(self, digest: str, where: Where) -> Sequence[str]:
        """Return keyed digests: with a digest without a key anyone could test guesses of the params."""
        text = where.bound + digest.encode()
        keyed = [hmac.digest(key, text, "sha256").hex() for key in self._digest_keys]
        return [*keyed, digest] if self.optional else keyed


def _library() -> tuple[type[AESGCM], type[Exception]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise UsageError("Encrypt needs the library `cryptography`: pip install cryptography") from None
    return AESGCM, InvalidTag


def _listed(keys: Mapping[str, object]) -> str:
    return ", ".join(repr(id_) for id_ in keys)


def _key(id_: str, key: bytes | str) -> bytes:
    if not KEY_ID.fullmatch(id_):
        # Not shown: it may be the key itself, given without its id.
        raise UsageError("a key's id has 1 to 64 letters, digits, '.', '_' or '-', as in '2026-11'")
    if not isinstance(key, str | bytes | bytearray):
        raise UsageError(f"key {id_!r} is of type {type(key).__name__}, not bytes or base64 text: {MAKE_ONE}")
    try:
        found = base64.b64decode(key, validate=True) if isinstance(key, str) else bytes(key)
    except (binascii.Error, ValueError):
        raise UsageError(f"key {id_!r} is no base64: {MAKE_ONE}") from None
    if len(found) != KEY_BYTES:
        raise UsageError(f"key {id_!r} has {len(found)} bytes, not {KEY_BYTES}: {MAKE_ONE}")
    return found
