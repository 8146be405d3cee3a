"""The lines of an export file: JSON, each with a checksum. docs/transfer.md describes the format.

A line is `{"kind": …, "crc": …, "data": {…}}`. The first is the header, the last has counts and a digest.
"""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from uuid import UUID

import msgspec

from holdfast.bounds import MIB, RUN_BYTES
from holdfast.errors import HoldfastError, UsageError
from holdfast.records import CatchUp, Definition, Instant, Json, Overlap
from holdfast.records.transfer import CarriedEvent, CarriedRun
from holdfast.records.units import DEFAULT_TENANT, PRIORITY

FORMAT = 2  # the newest format that this version reads
COPY, MOVES = 1, 2  # the formats that it writes: of a copy, and of runs that move
LINE_BYTES = 64 * MIB  # a longer line is damaged, but for a line of a run
RUN_LINE_BYTES = RUN_BYTES  # the open steps and all messages of a run are in one line
CHUNK_BYTES = MIB  # the rest of a line that is too long is read so
HEADER_BYTES = 64 * 1024  # a longer first line is no header
HEADER = b'{"kind":"header"'  # the begin of the first line
_RUN = b'{"kind":"run"'
TOO_LONG = b'{"kind":"","crc":"","data":"too long"}'  # instead of a line that is

T = TypeVar("T")


class DamagedLine(HoldfastError):
    """A line of an export file that cannot be read, or that was changed."""

    def __init__(self, number: int, why: str) -> None:
        self.number, self.why = number, why
        super().__init__(f"line {number:,} is damaged: {why}")


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line. `whole`: all runs are in the file. `sealed`: values are those of an encrypted store.
    `move`: the id of the move, if the runs in the file leave the source."""

    format: int
    exported_at: Instant = 0
    whole: bool = True
    sealed: bool = False
    masked: bool = False
    move: str = ""


class RegistryLine(msgspec.Struct, frozen=True, kw_only=True):
    """A registered type."""

    name: str
    runtime: str
    is_enabled: bool = True
    description: str = ""
    intent_type: str = "workflow"


class LimitLine(msgspec.Struct, frozen=True, kw_only=True):
    """A limit. Pauses of keys are not carried."""

    scope: str
    name: str
    concurrency: int | None = None
    rate: int | None = None
    period_seconds: float | None = None
    weight: float | None = None


class ScheduleLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule. Its counts and its queued times are not carried."""

    id: UUID
    name: str
    type: str
    tenant: str = DEFAULT_TENANT
    params: Json = "null"
    cron: str | None = None
    zone: str = "UTC"
    every_us: int | None = None
    anchor_at: Instant = 0
    jitter_us: int = 0
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONE
    priority: int = PRIORITY
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    ttl_seconds: float | None = None
    budget: int | None = None
    limit_key: str | None = None
    labels: Json | None = None
    paused_by: str | None = None


class RunLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run, or a part of a large one. `along`: it is there because another run needs it; its turn comes, or
    has come, elsewhere."""

    run: CarriedRun
    along: bool = False


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The last line. `sha256`: of all lines before it."""

    runs: int
    events: int
    lines: int
    sha256: str


KINDS: dict[str, Any] = {
    "header": Header,
    "definition": Definition,
    "registry": RegistryLine,
    "limit": LimitLine,
    "schedule": ScheduleLine,
    "event": CarriedEvent,
    "run": RunLine,
    "end": End,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}
_encode = msgspec.json.Encoder().encode


class _Line(msgspec.Struct):
    kind: str
    crc: str
    data: msgspec.Raw


_LINE = msgspec.json.Decoder(_Line)
_END = b'{"kind":"end"'


def line_of(record: Any) -> bytes:
    """Return a record as a line."""
    data = _encode(record)
    kind = _NAMES[type(record)].encode()
    if len(data) > RUN_LINE_BYTES - HEADER_BYTES and isinstance(record, RunLine):
        raise UsageError(
            f"the messages and open steps of run {record.run.id} have {len(data) // MIB:,} MiB, too many "
            "for a line of a file: move it from store to store"
        )
    return b'{"kind":"%s","crc":"%08x","data":%s}\n' % (kind, zlib.crc32(data), data)


def record_of(text: bytes, number: int) -> Any:
    """Return the record of a line. DamagedLine."""
    try:
        if text == TOO_LONG:
            raise DamagedLine(
                number, f"it has more than {LINE_BYTES // MIB} MiB, more than any line of its kind"
            )
        line = _LINE.decode(text)
        data = bytes(line.data)
        if line.crc != f"{zlib.crc32(data):08x}":
            raise DamagedLine(number, "its checksum does not match its content")
        if line.kind not in _DECODERS:
            raise DamagedLine(number, f"it is of no known kind: {line.kind[:40]!r}")
        return _DECODERS[line.kind].decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        why = str(error)[:200] if text.endswith(b"\n") else "the file ends in the middle of it"
        raise DamagedLine(number, why) from None


def header_of(text: bytes, name: str) -> Header:
    """Return the header of a file. A file of a newer format, and another file, are refused."""
    try:
        found = _LINE.decode(text)
        format_ = msgspec.json.decode(found.data, type=dict[str, Any]).get("format")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found, format_ = None, None
    if found is None or found.kind != "header" or type(format_) is not int:
        raise UsageError(f"{name} is no file of an export")
    if format_ > FORMAT:
        raise UsageError(
            f"{name} has format {format_}, and this version of Holdfast reads up to {FORMAT}: use a newer "
            "version"
        )
    header = record_of(text, 1)
    assert isinstance(header, Header)
    return header


def made(path: Path, *, anew: bool = False) -> BinaryIO:
    """Open a new file that only its owner can read, like the file of a store. Its name outlives a power cut.
    anew: one that is there is replaced, but for a link; `put` gives it its lasting name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC | os.O_NOFOLLOW if anew else os.O_EXCL)
    file = os.fdopen(os.open(path, flags, 0o600), "wb")
    try:
        if not anew:
            _sync_names(path.parent)
    except BaseException:
        file.close()
        path.unlink()
        raise
    return file


def put(new: Path, path: Path) -> None:
    """Give a file that is on the disk its lasting name. After a power cut the file has this name, too."""
    new.replace(path)
    _sync_names(path.parent)


def _sync_names(folder: Path) -> None:
    """Bring the names of the files of a folder to the disk."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(place)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some file systems cannot do this
            raise
    finally:
        os.close(place)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Tell in one line that the disk is full, or that a file cannot be read or written."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise  # these are OSErrors too, and not of a file
    except OSError as error:
        raise UsageError(
            f"{error.filename or path} cannot be read or written: {error.strerror or error}; mend that, and "
            "start the command again (an export with --resume)"
        ) from None


def synced(file: BinaryIO) -> None:
    """Bring all that was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def runs_in(path: Path) -> int | None:
    """Return the number of runs of a file, as its last line says it. None: it is not complete."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - HEADER_BYTES))
            end = record_of(file.read().splitlines(keepends=True)[-1], 0)
    except (OSError, IndexError, DamagedLine):
        return None
    return end.runs if isinstance(end, End) else None


class Lines:
    """The lines of a file, read one by one, with their numbers and the digest of those before."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.number, self.place = file, 0, 0
        self._digest = hashlib.sha256()
        self.sha256 = ""  # of the lines before the one that was read last

    def first(self) -> bytes:
        """Return the first line; empty, if there is none."""
        return self.next(HEADER_BYTES) or b""

    def next(self, most: int = 0) -> bytes | None:
        """Return the next line with its end; None: there is no further line. A line that was not written to
        its end has none. At most `most` bytes of it are read. Without that a line that is too long is passed
        over, and TOO_LONG is returned."""
        text = self._file.readline(most or LINE_BYTES)
        if not text:
            return None
        self.number += 1
        if text.startswith(_END):
            self.sha256 = self._digest.hexdigest()
        self._count(text)
        if not most and len(text) == LINE_BYTES and not text.endswith(b"\n"):
            return self._long_line(text)
        return text

    def _count(self, text: bytes) -> None:
        self._digest.update(text)
        self.place += len(text)

    def _long_line(self, text: bytes) -> bytes:
        """Return a long line of a run. Pass over any other one."""
        if text.startswith(_RUN):
            more = self._file.readline(RUN_LINE_BYTES - LINE_BYTES)
            self._count(more)
            if more.endswith(b"\n") or len(more) < RUN_LINE_BYTES - LINE_BYTES:
                return text + more
        while more := self._file.readline(CHUNK_BYTES):
            self._count(more)
            if more.endswith(b"\n"):
                break
        return TOO_LONG

    def digest(self) -> hashlib._Hash:
        """Return the digest of all lines that were read."""
        return self._digest.copy()
