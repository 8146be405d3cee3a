"""Large JSON texts, read in pieces: no call builds all of a value.

One call of a decoder keeps Python's lock until it returns. For a value of 4 MiB with millions of brackets
that is some hundred milliseconds, and many times as long with the garbage collector, which looks at every new
list again and again. A server that does this stands still, in whatever thread it does it. So a large text is
split at its outer levels, without building what is inside, and each piece is decoded, checked and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from .errors import BadValue

LARGE_BYTES = 64 * 1024  # a smaller text is one piece
_items = msgspec.json.Decoder(list[msgspec.Raw])
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode

Read = Callable[[bytes], str]  # reads a JSON array, and returns it as compact JSON


class RepeatedKey(BadValue):
    """A key occurs twice in one object of a large text."""


def rewritten(text: bytes, read: Read) -> str:
    """Return a JSON text, made of what `read` returns for its pieces; each piece comes as an array.

    RepeatedKey; msgspec.DecodeError and UnicodeError as from a decoder; and all that `read` raises.
    """
    return "".join(_rewritten(text, read))


def _rewritten(text: bytes, read: Read) -> Iterator[str]:
    text = text.strip()
    first = text[:1]
    if len(text) > LARGE_BYTES and first == b"[":
        items = _items.decode(text)
        yield "["
        yield from _joined(_parts(((b"", bytes(one)) for one in items), read, (b"[", b"]")))
        yield "]"
    elif len(text) > LARGE_BYTES and first == b"{":
        members = _members.decode(text)
        # A member that the decoder has dropped would be missing here, with one colon at least.
        if _colons(text) != len(members) + _colons(b",".join(map(bytes, members.values()))):
            raise RepeatedKey("has a key twice in one object")
        named = ((_encode(key) + b":", bytes(one)) for key, one in members.items())
        yield "{"
        yield from _joined(_parts(named, read, (b"[{", b"}]")))
        yield "}"
    else:
        yield read(b"[" + text + b"]")[1:-1]


def _joined(parts: Iterable[str]) -> Iterator[str]:
    for n, part in enumerate(parts):
        if n:
            yield ","
        yield part


def _parts(members: Iterable[tuple[bytes, bytes]], read: Read, around: tuple[bytes, bytes]) -> Iterator[str]:
    """Read the items of an array, or the members of an object: small ones together, large ones in pieces."""
    before, after = around
    levels = len(before)
    few: list[bytes] = []
    size = 0

    def gathered() -> str:
        found = read(before + b",".join(few) + after)[levels:-levels]
        few.clear()
        return found

    for name, value in members:
        if len(value) > LARGE_BYTES:
            if few:
                yield gathered()
                size = 0
            yield name.decode() + "".join(_rewritten(value, read))
            continue
        few.append(name + value)
        size += len(name) + len(value)
        if size > LARGE_BYTES:
            yield gathered()
            size = 0
    if few:
        yield gathered()


def _colons(text: bytes) -> int:
    """Return the number of colons outside of strings."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(text.split(b'"')[::2]).count(b":")
