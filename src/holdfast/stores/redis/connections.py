"""Calls to the server: a pool of connections for each event loop, a deadline for every call.

A command that a server refuses for now is sent again until the deadline: in a cluster where it belongs, else
after a pause. A script without an answer is not sent again: it may have been carried out.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import ConnectionError, ResponseError  # noqa: A004 - the driver's

from holdfast.errors import Unavailable

from .address import Address
from .errors import DRIVER, Redirect, redirect, translated
from .link import Command, Link, packed
from .nodes import PAUSE_MAX_SECONDS, PAUSE_SECONDS, Nodes
from .pool import Pool
from .scripts import READS, script

CALL_SECONDS = 10.0  # the longest time that a call may take
BYTES_PER_SECOND = 5_000_000  # a large call may take longer
AGAIN_SECONDS = (0.0, 0.05)  # pauses before reads are sent again on another connection
LINKS, WAITING_LINKS = 4, 16  # connections of one event loop; a call that waits for replicas blocks its own
MOVES = 5  # times that a call follows the namespace at once; then it pauses
ScriptCall = tuple[Sequence[str], Sequence[Any]]  # KEYS and ARGV
_ASKING = packed([("ASKING",)])
_inherited: list[object] = []  # connections of the parent process: to close them here would disturb it


class Connections:
    """All connections of one store."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.nodes = Nodes(address)
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._changing = threading.Lock()
        self._pid = os.getpid()
        self.is_open = False
        self.call_seconds = CALL_SECONDS

    @property
    def flagged(self) -> bool:
        """True when the server knows flags of scripts."""
        return self.nodes.flagged

    # Pools.

    def _pool(self) -> Pool:
        if not self.is_open:
            raise Unavailable(f"{self.address.shown}: the store is not open")
        loop = asyncio.get_running_loop()
        self._disown()
        pool = self._pools.get(loop)
        if pool is None:
            most = WAITING_LINKS if self.address.confirming else LINKS
            with self._changing:
                if not self.is_open:  # closed by another thread just now: nobody would close the pool
                    raise Unavailable(f"{self.address.shown}: the store is not open")
                self._pools = {one: pool for one, pool in self._pools.items() if not one.is_closed()}
                pool = self._pools[loop] = Pool(self._opened, self.nodes.connected, most)
        return pool

    def _disown(self) -> None:
        """Leave the parent's connections alone, in a child."""
        if self._pid != os.getpid():
            _inherited.append(self._pools)
            self._pools, self._pid, self._changing = {}, os.getpid(), threading.Lock()

    async def _opened(self) -> Link:
        return await self.nodes.opened(self.call_seconds)

    async def close(self) -> None:
        """Close the connections of this event loop, and forget the others."""
        self._disown()
        with self._changing:
            self.is_open = False
            pools, self._pools = self._pools, {}
        mine = pools.pop(asyncio.get_running_loop(), None)
        for loop, pool in pools.items():
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(pool.end)
        if mine is not None:
            await mine.close()

    async def leave(self) -> None:
        """Close the connections of this event loop alone."""
        self._disown()
        with self._changing:
            pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    # Calls.

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to reads that are sent together. On a lost connection, which may have been lost
        long ago, they are sent again. A command may be the name of a script that only reads, and its key."""
        reads = {place: command for place, command in enumerate(commands) if command[0] in READS}
        if reads:
            commands = await self._with_scripts(commands, reads)
        for pause in AGAIN_SECONDS:
            try:
                answers = await self._call(commands)
                break
            except Unavailable as error:
                if not isinstance(error.__cause__, ConnectionError | OSError):
                    raise
            await asyncio.sleep(pause)
        else:
            answers = await self._call(commands)
        lacking = [place for place in reads if _is_unknown(answers[place])]
        if lacking:
            texts = [script(reads[place][0], flagged=self.nodes.flagged).text for place in lacking]
            again = [("EVAL", text, *commands[place][2:]) for place, text in zip(lacking, texts, strict=True)]
            for place, answer in zip(lacking, await self.ask(again), strict=True):
                answers[place] = answer
        for place, answer in enumerate(answers):
            if type(answer) is list:
                answers[place] = _shaped(commands[place], answer)
            elif isinstance(answer, ResponseError):
                raise translated(answer, self.address.shown) from answer
        return answers

    async def _with_scripts(self, commands: Sequence[Command], reads: dict[int, Command]) -> list[Command]:
        """Return the commands with calls of scripts in place of their names."""
        if not self.nodes.is_met:
            await self.ask([("PING",)])
        sent = list(commands)
        for place, (name, *keys) in reads.items():
            sent[place] = ("EVALSHA", script(name, flagged=self.nodes.flagged).sha, len(keys), *keys)
        return sent

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, once."""
        return (await self.run_all(name, [(keys, args)]))[0]

    async def run_all(self, name: str, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run a script once for each of these calls, which are sent together. Return the answers in order.

        A server that does not have the script yet is sent its text. Each call is carried out by itself: an
        error of one is raised when all have been answered.
        """
        if not self.nodes.is_met:
            await self.ask([("PING",)])
        known = script(name, flagged=self.nodes.flagged)
        words = [(*self.nodes.keys(*keys), *args) for keys, args in calls]
        answers = await self._run([("EVALSHA", known.sha, *rest) for rest in words])
        lacking = [place for place, answer in enumerate(answers) if _is_unknown(answer)]
        if lacking:
            again = await self._run([("EVAL", known.text, *words[place]) for place in lacking])
            for place, answer in zip(lacking, again, strict=True):
                answers[place] = answer
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise translated(answer, self.address.shown) from answer
        return answers

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to scripts, when their writes are as safe as the URL asks for."""
        confirming = self.address.confirming
        if confirming is None:
            return await self._call(commands, scripts=len(commands))
        *answers, confirmed = await self._call((*commands, confirming), scripts=len(commands))
        if not all(isinstance(answer, ResponseError) for answer in answers):
            _refuse_unconfirmed(self.address, confirmed)
        return answers

    async def _call(self, commands: Sequence[Command], *, scripts: int = 0) -> list[Any]:
        """Return the answers, with errors of single commands among them. `scripts`: so many of the first
        commands are scripts."""
        words = packed(commands)
        seconds = self.call_seconds + len(words) / BYTES_PER_SECOND
        if scripts and self.address.confirming:
            seconds += self.address.wait_ms / 1000
        pool = self._pool()
        try:
            link = pool.ready() or await self._linked(pool, seconds)
            answers = await _exchanged(link, words, len(commands), seconds)
            # The command behind scripts only confirms them: they have been carried out by then.
            for answer in answers[:scripts] if scripts else answers:
                if isinstance(answer, ResponseError) and redirect(answer):
                    return await self._again(pool, link, commands, answers, seconds, scripts=scripts)
            return answers
        except TimeoutError:
            raise Unavailable(f"{self.address.shown}: it has not answered within {seconds:.3g} s") from None
        except DRIVER as error:
            raise translated(error, self.address.shown) from error

    async def _linked(self, pool: Pool, seconds: float) -> Link:
        """Return a connection. A server that refuses it for now is asked again; the pool makes the pauses."""
        refusal: ResponseError | None = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await pool.link()
                    except ResponseError as error:
                        if redirect(error) is None:
                            raise
                        refusal = error
        except TimeoutError:
            if refusal is None:
                raise
            raise Unavailable(f"{self.address.shown}: {refusal} (for {seconds:.3g} s)") from None

    async def _again(
        self, pool: Pool, link: Link, commands: Sequence[Command], answers: list[Any], seconds: float,
        *, scripts: int,
    ) -> list[Any]:  # fmt: skip
        """Send the commands again that were refused for now, until the time is up.

        A script that was refused has not begun: it is sent again, with the command that confirms it.
        """
        clock = asyncio.get_running_loop().time
        deadline, pause, moves = clock() + seconds, PAUSE_SECONDS, 0
        behind = range(scripts, len(commands)) if scripts else range(0)
        while refused := _refused(answers[:scripts] if scripts else answers):
            why = refused[min(refused)]
            is_asked = why.word == "ASK" and why.node is not None and not scripts
            moves += why.word == "MOVED"
            self._follow(pool, link, why)
            too_long = Unavailable(f"{self.address.shown}: {answers[min(refused)]} (for {seconds:.3g} s)")
            if not is_asked and (why.word != "MOVED" or moves > MOVES):
                if clock() + pause >= deadline:
                    raise too_long
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_SECONDS)
            places = [*refused, *behind]
            left = max(deadline - clock(), PAUSE_SECONDS)
            try:
                if is_asked and why.node is not None:
                    async with asyncio.timeout(left):
                        link = await pool.aside(self.nodes.near(link, why.node))
                else:
                    link = pool.ready() or await self._linked(pool, left)
            except TimeoutError:
                raise too_long from None
            if is_asked:
                words = b"".join(_ASKING + packed((commands[place],)) for place in places)
                more = (await _exchanged(link, words, 2 * len(places), left))[1::2]
            else:
                words = packed([commands[place] for place in places])
                more = await _exchanged(link, words, len(places), left)
            for place, answer in zip(places, more, strict=True):
                answers[place] = answer
        return answers

    def _follow(self, pool: Pool, link: Link, why: Redirect) -> None:
        """Let the next connections lead to the node that has the namespace now."""
        if why.word == "MOVED" and why.node is not None:
            if pool.leave(link):
                self.nodes.node = self.nodes.near(link, why.node)
        elif why.word == "READONLY":
            pool.leave(link)  # it has become a replica: the address may lead to another server


def _is_unknown(answer: Any) -> bool:
    """Return True when the server does not have a script."""
    return isinstance(answer, ResponseError) and str(answer).startswith("NOSCRIPT")


def _refused(answers: Sequence[Any]) -> dict[int, Redirect]:
    """Return the commands that were refused for now, by their places."""
    found = ((place, redirect(one)) for place, one in enumerate(answers) if isinstance(one, ResponseError))
    return {place: why for place, why in found if why is not None}


async def _exchanged(link: Link, words: bytes, count: int, seconds: float) -> list[Any]:
    try:
        return await link.send(words, count, seconds)
    except asyncio.CancelledError:
        link.retire()  # it may be dead: the next call must not wait for it, too
        raise


def _refuse_unconfirmed(address: Address, confirmed: Any) -> None:
    """Raise Unavailable for a write that is not as safe as the URL asks for: its outcome is unknown."""
    if isinstance(confirmed, ResponseError):
        said = str(confirmed)
    else:
        local, replicas = confirmed if isinstance(confirmed, list) else (0, confirmed)
        if replicas >= address.replicas and local >= address.aof:
            return
        said = f"{replicas} of {address.replicas} replicas"
        if address.aof:
            said += f" and {local} of 1 append-only file"
    raise Unavailable(
        f"{address.shown}: a write was not confirmed within {address.wait_ms} ms ({said}): a failover may "
        "lose it, so it counts as unknown"
    )


def _shaped(command: Command, answer: list[Any]) -> Any:
    if command[0] == "HGETALL":
        pairs = iter(answer)
        return dict(zip(pairs, pairs, strict=True))
    if "WITHSCORES" in command:
        pairs = iter(answer)
        return [(member, float(score)) for member, score in zip(pairs, pairs, strict=True)]
    return answer
