"""http: hostile requests to a real server process. Each is refused with a 4xx or by closing the connection.

Beside them there are good requests, which must be answered soon, and connections that send their head or body
byte by byte. Afterwards the log has no traceback, memory is as before, and nothing was changed. Everything
stays on this machine's loopback.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import App
from holdfast.records import Scope
from verify.checks.report import SHOWN, Check, Report, progress

from .attacks import FOREIGN, RUN, Attack, Attacks

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE, SLOW = 20, 20
ANSWER_SECONDS, GOOD_SECONDS, START_SECONDS = 20.0, 5.0, 30.0
CUT_SECONDS = 0.3  # then the client ends a request that is not whole
SLOW_SECONDS = 45.0  # the server gives up a head after 20 s, and a body after 30 s
WARM = 1_000  # requests before memory is measured: parsers, caches and pools are filled once
GROWTH_MAX = 32 << 20  # bytes: the threads that parse large bodies keep the memory of the largest
GOOD_EVERY = 50
TRACEBACK = re.compile(r"^.*(?:Traceback \(most recent call last\)|request \w{32} failed).*$", re.MULTILINE)
ADDRESS = re.compile(r"serving http://127\.0\.0\.1:(\d+)")


@dataclass(slots=True)
class Seen:
    """The answers."""

    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)  # 0: closed without an answer
    faults: list[str] = field(default_factory=list)
    good: list[float] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Server:
    """A server process."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def memory(self) -> int:
        """Bytes of memory in use."""
        text = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        return int(text.partition("VmRSS:")[2].split()[0]) * 1024


async def http(
    requests: int = 10_000, seed: int = 0, sabotage: str | None = None, *, slow: bool = True
) -> Report:
    """Send hostile requests. slow: also wait until the server has given up slow ones, which takes 30 s."""
    began, seen = time.monotonic(), Seen()
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/keyed.db"
        key = await _furnished(store)
        async with _served(store, Path(folder) / "keyed.log", sabotage) as server:
            before = await _good(server, key, seen)
            cursor = before.partition('"next":"')[2].partition('"')[0]
            crawling = [asyncio.create_task(_crawl(server, key, n)) for n in range(SLOW)]
            attacks, memory = Attacks(seed, key, cursor), 0
            with progress() as tell:
                for at in range(0, requests, GOOD_EVERY):
                    memory = memory or (server.memory if at >= min(WARM, requests // 2) else 0)
                    await _volley(
                        server, [attacks.next() for _ in range(min(GOOD_EVERY, requests - at))], seen
                    )
                    await _good(server, key, seen)
                    tell(f"{sum(seen.kinds.values())} requests, {len(seen.faults)} faults")
            growth = server.memory - memory
            ends = await _ends(crawling, slow=slow)
            after = await _good(server, key, seen)
            alive = server.process.poll() is None
        async with _served(f"sqlite:///{folder}/open.db", Path(folder) / "open.log", sabotage) as opened:
            await _volley(opened, [*FOREIGN], seen)
        logs = _logs(Path(folder))
    traces = [one for text in logs for one in TRACEBACK.findall(text)]
    changed = [] if before == after else [f"before: {before[:300]}", f"after: {after[:300]}"]
    report = Report("http")
    for name, faults in {
        "W1 hostile requests that were not refused": seen.faults,
        "W2 tracebacks in the log": traces,
        "W3 memory grew": [f"{growth / 1e6:.1f} MB"] if growth > GROWTH_MAX else [],
        "W4 good requests that failed or came late": seen.late,
        "W5 something was changed": changed,
        "W6 slow connections that were kept": ends,
    }.items():
        report.checks.append(Check(name, len(faults), tuple(faults[:SHOWN]), invariant=True))
    report.expect("the server lives", alive)
    report.expect("every kind of attack was tried", len(seen.kinds) >= 18 or requests < 500, f"{seen.kinds}")
    report.figures = {
        "requests": sum(seen.kinds.values()),
        "answers": ", ".join(f"{status or 'closed'}: {n}" for status, n in sorted(seen.statuses.items())),
        "good requests": len(seen.good),
        "longest": f"{max(seen.good, default=0):.2f} s",
        "memory": f"{growth / 1e6:+.1f} MB",
        "seconds": round(time.monotonic() - began),
    }
    return report


def _logs(folder: Path) -> list[str]:
    return [_text(file) for file in folder.glob("*.log")]


async def _furnished(store: str) -> str:
    """Create a key and a few runs; return the key."""
    app = App(store)

    @app.workflow("shop.order.v1")
    async def order(ctx: object, params: object = None) -> None: ...

    scopes = [one for one in Scope if one is not Scope.OPERATOR]
    made = await app.create_key("hostile", scopes=scopes)
    for n in range(3):
        await app.start(order, n, delay=86_400)
    await app.close()
    return made.secret


@asynccontextmanager
async def _served(store: str, log: Path, sabotage: str | None) -> AsyncIterator[Server]:
    command = [sys.executable, "-m", "verify.http_input.serve", store, sabotage or ""]
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: ASYNC220 - it is started once, and not waited for
            command, cwd=ROOT, stdout=file, stderr=file, env=os.environ | {"NO_COLOR": "1"}
        )
    try:
        yield Server(process, await _port(log, process), log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _text(log: Path) -> str:
    return log.read_text("utf-8", "replace")


async def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    for _ in range(int(START_SECONDS / 0.05)):
        if found := ADDRESS.search(_text(log)):
            return int(found[1])
        if process.poll() is not None:
            break
        await asyncio.sleep(0.05)
    raise RuntimeError(f"the server did not start: {_text(log)[-500:]}")


async def _volley(server: Server, attacks: list[Attack], seen: Seen) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(attack: Attack) -> None:
        async with turns:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    status = await _sent(server, attack)
            except TimeoutError:
                status = -1
        seen.kinds[attack.kind] += 1
        seen.statuses[status] += 1
        if not (400 <= status < 500 or (status == 0 and attack.may_close)):
            sent = f"{attack.parts[-1][:60]!r} after {_without_key(attack.parts[0])!r}"
            seen.faults.append(f"{attack.kind}: {status} for {sent}")

    await asyncio.gather(*map(one, attacks))


def _without_key(head: bytes) -> bytes:
    return re.sub(rb"hf_\w+", b"hf_", head)[:120]


async def _sent(server: Server, attack: Attack) -> int:
    """Send an attack; return the status, or 0 when the server closes without an answer."""
    answer = await _answer(server, attack.parts, is_cut=attack.is_cut)
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.") else 0


async def _answer(server: Server, parts: tuple[bytes, ...], *, is_cut: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answer = b""
    try:
        for part in parts:
            writer.write(part)
        if is_cut:
            with suppress(TimeoutError):
                async with asyncio.timeout(CUT_SECONDS):
                    answer = await reader.read(65536)
            writer.write_eof()
        while part := await reader.read(65536):
            answer += part
    except OSError:  # it may close while a large body is on its way
        pass
    finally:
        writer.close()
    return answer


async def _good(server: Server, key: str, seen: Seen) -> str:
    """Send a good request; return the body of its answer."""
    lines = (
        "GET /runs?limit=2 HTTP/1.1",
        "host: localhost",
        "connection: close",
        f"authorization: Bearer {key}",
    )
    head = "\r\n".join([*lines, "", ""])
    began = time.monotonic()
    answer = (await _answer(server, (head.encode(),))).decode()
    took = time.monotonic() - began
    seen.good.append(took)
    if not answer.startswith("HTTP/1.1 200") or took > GOOD_SECONDS:
        seen.late.append(f"{took:.1f} s: {answer[:100]}")
    return answer.partition("\r\n\r\n")[2]


async def _crawl(server: Server, key: str, n: int) -> float:
    """Send a head or a body byte by byte, for ever; return the seconds until the server closed."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST /runs/{RUN}/cancel HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
    if n % 2:
        head += "content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
    writer.write(head.encode())
    ended = asyncio.ensure_future(reader.read())
    try:
        while not ended.done():
            writer.write(b" " if n % 2 else b"x")
            await asyncio.wait([ended], timeout=1.0)
    finally:
        ended.cancel()
        writer.close()
    return time.monotonic() - began


async def _ends(crawling: list[asyncio.Task[float]], *, slow: bool) -> list[str]:
    """Return the slow connections that the server has kept for too long; without `slow` end them now."""
    if slow:
        await asyncio.wait(crawling, timeout=SLOW_SECONDS)
    kept = [f"number {n}" for n, one in enumerate(crawling) if not one.done()] if slow else []
    for one in crawling:
        one.cancel()
    await asyncio.gather(*crawling, return_exceptions=True)
    return kept
