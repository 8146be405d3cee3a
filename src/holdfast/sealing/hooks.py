"""The codec hook: it seals a value on its way into the store and opens it on its way back.

A hook is a sync function and must be quick: it is called on the event loop, and from the thread that renews
leases.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.arguments import BIG_MAX, check_whole
from holdfast.bounds import VALUE_BYTES
from holdfast.errors import CannotOpen


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a sealed value belongs to. Moved to another place it must not open."""

    tenant: str
    run: UUID | None = None  # None: an event, which does not belong to one run
    field: str
    name: str = ""  # the name of the step or the event
    topic: str = ""  # the topic of the event
    inner: tuple[str, ...] = ()  # the names of the hooks that were applied before this one

    def __str__(self) -> str:
        """Describe the place, for messages to people."""
        named = f" {self.name!r}" if self.name else ""
        return f"the {self.field}{named}" + (f" of run {self.run}" if self.run is not None else "")

    @property
    def bound(self) -> bytes:
        """Return the place as bytes. No two places have the same bytes."""
        # str(): a subclass of str is refused later by the store, with its own message.
        parts: tuple[object, ...] = (self.tenant, self.field, self.name, self.topic)
        tenant, *names = [str.__str__(one) if isinstance(one, str) else one for one in parts]
        return msgspec.json.encode((1, tenant, self.run, *names, self.inner))


class CodecHook(Protocol):
    """One hook of a codec. Hooks seal in order and open in reverse."""

    @property
    def name(self) -> str:
        """The name that is stored with each value that it has sealed. It must never change."""

    @property
    def optional(self) -> bool:
        """True when a value that this hook has not sealed is accepted. Else it is refused."""

    def seal(self, value: bytes, where: Where) -> tuple[str, bytes]:
        """Return how the value was sealed, and the sealed bytes. CannotSeal says why it cannot be sealed.

        How: `name`, or `name:` and public data that opening needs; empty when the value was not changed.
        """

    def open(self, how: str, value: bytes, where: Where) -> bytes:
        """Return the value that was sealed. CannotOpen or a subclass of it says why it cannot be opened."""

    def digests(self, digest: str, where: Where) -> Sequence[str]:
        """Return digests of a start that may be stored: a hook that hides makes a keyed digest, others change
        nothing. The first is stored now; the others may have been stored under older keys."""


class Compress:
    """Compression by zlib of values that get shorter. It hides nothing. It goes before `Encrypt`, never
    after."""

    name = "zlib"
    optional = True

    def __init__(self, min_bytes: int = 512, level: int = 6) -> None:
        self._min_bytes = check_whole("Compress: min_bytes", min_bytes, 0, BIG_MAX)
        self._level = check_whole("Compress: level", level, 0, 9)

    def __repr__(self) -> str:
        """Show the arguments."""
        return f"Compress(min_bytes={self._min_bytes}, level={self._level})"

    def seal(self, value: bytes, where: Where) -> tuple[str, bytes]:
        """Compress the value. A short value, or one that would not get shorter, is not changed."""
        if len(value) < self._min_bytes:
            return "", value
        packed = zlib.compress(value, self._level)
        return (self.name, packed) if len(packed) < len(value) else ("", value)

    def open(self, how: str, value: bytes, where: Where) -> bytes:
        """Decompress up to the limit of a value: a few crafted bytes could otherwise use all memory."""
        unpacking = zlib.decompressobj()
        try:
            unpacked = unpacking.decompress(value, VALUE_BYTES + 1)
        except zlib.error as error:
            raise CannotOpen(f"{where} is damaged: {error}") from None
        if len(unpacked) > VALUE_BYTES:
            raise CannotOpen(f"{where} unpacks to more than {VALUE_BYTES:,} bytes, the limit of a value")
        if not unpacking.eof:
            raise CannotOpen(f"{where} is damaged: it is cut off")
        return unpacked

    def digests(self, digest: str, where: Where) -> Sequence[str]:
        """Return the digest unchanged."""
        return (digest,)
