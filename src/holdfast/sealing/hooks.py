"""The codec hook: what seals a value on its way into the store and opens it on its way back.

A hook is plain and quick: it is called on the event loop, and from the thread that renews leases.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.arguments import BIG_MAX, check_whole
from holdfast.codec import LIMIT_BYTES
from holdfast.errors import CannotOpen


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The one place that a sealed value belongs to. Moved anywhere else it must not open."""

    tenant: str
    run: UUID | None = None  # None: an event, which belongs to no one run
    field: str
    name: str = ""  # of the step, or of the event
    topic: str = ""  # of the event
    inner: tuple[str, ...] = ()  # what the hooks before this one have done to it

    def __str__(self) -> str:
        """For a person who is told that it does not open."""
        named = f" {self.name!r}" if self.name else ""
        return f"the {self.field}{named}" + (f" of run {self.run}" if self.run is not None else "")

    @property
    def bound(self) -> bytes:
        """All of it, such that no two places have the same bytes."""
        # Plain text: a subclass of str is refused by the store behind, in its own words.
        said: tuple[object, ...] = (self.tenant, self.field, self.name, self.topic)
        tenant, *names = [str.__str__(one) if isinstance(one, str) else one for one in said]
        return msgspec.json.encode((1, tenant, self.run, *names, self.inner))


class CodecHook(Protocol):
    """One link of a codec. Links are applied in order and opened in reverse."""

    @property
    def name(self) -> str:
        """What values that it has sealed are known by, for ever."""

    @property
    def optional(self) -> bool:
        """Whether a value that did not pass through it is taken as it is; else it is refused."""

    def seal(self, value: bytes, where: Where) -> tuple[str, bytes]:
        """How it was sealed, and the sealed bytes. How: `name`, or `name:` and what opening needs to know
        and anyone may read; empty when the value was left as it is. CannotSeal says why not."""

    def open(self, how: str, value: bytes, where: Where) -> bytes:
        """What was sealed; CannotOpen or a leaf of it says why not."""

    def digests(self, digest: str, where: Where) -> Sequence[str]:
        """What may be stored of a start's digest: keyed by a hook that hides, as it is by others. First the
        one that is stored now, then those by which the same start may be there under older keys."""


class Compress:
    """zlib, for values that are worth it. It hides nothing. It goes before `Encrypt`, never after."""

    name = "zlib"
    optional = True

    def __init__(self, min_bytes: int = 512, level: int = 6) -> None:
        self._min_bytes = check_whole("Compress: min_bytes", min_bytes, 0, BIG_MAX)
        self._level = check_whole("Compress: level", level, 0, 9)

    def __repr__(self) -> str:
        """As it was made."""
        return f"Compress(min_bytes={self._min_bytes}, level={self._level})"

    def seal(self, value: bytes, where: Where) -> tuple[str, bytes]:
        """Leave alone what is short, and what would not get shorter."""
        if len(value) < self._min_bytes:
            return "", value
        packed = zlib.compress(value, self._level)
        return (self.name, packed) if len(packed) < len(value) else ("", value)

    def open(self, how: str, value: bytes, where: Where) -> bytes:
        """Never more than a value may have: a few bytes could be made to claim all memory."""
        unpacking = zlib.decompressobj()
        try:
            unpacked = unpacking.decompress(value, LIMIT_BYTES + 1)
        except zlib.error as error:
            raise CannotOpen(f"{where} is damaged: {error}") from None
        if len(unpacked) > LIMIT_BYTES:
            raise CannotOpen(f"{where} unpacks to more than {LIMIT_BYTES:,} bytes, the limit of a value")
        if not unpacking.eof:
            raise CannotOpen(f"{where} is damaged: it is cut off")
        return unpacked

    def digests(self, digest: str, where: Where) -> Sequence[str]:
        """As it is."""
        return (digest,)
