"""Reads of the steps of one run, in parts: a run may have 256 MiB of recorded values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from holdfast.bounds import BATCH_BYTES, slices
from holdfast.machine.rows import StepRow
from holdfast.stores.redis import rows
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.rows import RunRow

LOOKED, LOOKED_BYTES = 200, 1024 * 1024  # steps, and bytes of them, that one script looks at
AT_ONCE = 10  # scripts of one round trip
PART = 1000  # steps that are read at once
Outlined = tuple[int, str, int]  # number, key and bytes of a step


class StepReads(Core):
    """Reads of steps, as a mixin of the store."""

    async def _steps_after(
        self, row: RunRow, after: int, most: int = BATCH_BYTES
    ) -> tuple[list[StepRow], bool]:
        """Return steps with a number above `after`, by number: as many as fit, but at least one; and True
        when there are more."""
        key = self._names.steps(row.id)
        if row.bytes <= BATCH_BYTES:
            (texts,) = await self._connections.ask([("HGETALL", key)])
            return _cut([step for step in _by_number(texts.values()) if step.seq > after], most)
        while True:
            outline = sorted(one for one in await self._outline(key) if one[0] > after)
            part = _fitting(outline, most)
            found = await self._named(key, part)
            if len(part) == len(outline):
                return _cut([step for step in found if step.seq > after], most)
            # A wait that was settled meanwhile has a higher number, and is read again there. On this page it
            # would be the last step, behind which the reader goes on: those in between would be left out.
            last = part[-1][0]
            taken, _ = _cut([step for step in found if after < step.seq <= last], most)
            if taken:
                return taken, True
            after = last

    async def _steps_before(self, row: RunRow, before: int, most: int) -> list[StepRow]:
        """Return steps with a number below `before`, the newest first: as many as fit, but at least one if
        there is one."""
        key = self._names.steps(row.id)
        while True:
            outline = sorted((one for one in await self._outline(key) if one[0] < before), reverse=True)
            part = _fitting(outline, most)
            found = [step for step in await self._named(key, part) if step.seq < before]
            if found or not part:
                return found[::-1]
            before = part[-1][0]

    async def _named(self, key: str, part: Sequence[Outlined]) -> list[StepRow]:
        if not part:
            return []
        (texts,) = await self._connections.ask([("HMGET", key, *(name for _, name, _ in part))])
        return _by_number(texts)

    async def _outline(self, key: str) -> list[Outlined]:
        """Return number, key and bytes of all steps of a large run, read by short scripts: only a script can
        read the number of a step without sending its values."""
        (left,) = await self._connections.ask([("HKEYS", key)])
        found: list[Outlined] = []
        while left:
            parts = [left[at : at + LOOKED] for at in range(0, len(left), LOOKED)][:AT_ONCE]
            rest = left[sum(map(len, parts)) :]
            calls = [([key], [LOOKED_BYTES, *part]) for part in parts]
            for part, said in zip(parts, await self._connections.run_all("outline", calls), strict=True):
                numbers, sizes = said[::2], said[1::2]
                found += (one for one in zip(numbers, part, sizes, strict=False) if one[2])
                rest += part[len(numbers) :]
            left = rest
        return found

    async def _all_steps(self, row: RunRow) -> AsyncIterator[list[StepRow]]:
        """Yield all steps, in parts that are in no order. One that is settled meanwhile comes once."""
        key = self._names.steps(row.id)
        if row.bytes <= BATCH_BYTES:
            (stored,) = await self._connections.ask([("HGETALL", key)])
            yield _by_number(stored.values())
            return
        for part in slices(await self._outline(key), lambda one: one[2], BATCH_BYTES, PART):
            yield await self._named(key, part)


def _by_number(texts: Iterable[str | None]) -> list[StepRow]:
    return sorted((rows.step_row(text) for text in texts if text), key=lambda step: step.seq)


def _fitting(outline: Sequence[Outlined], most: int) -> list[Outlined]:
    """Return the first steps that fit into so many bytes, but at least one."""
    taken, left = list[Outlined](), most
    for one in outline:
        left -= one[2]
        if left < 0 and taken:
            break
        taken.append(one)
    return taken


def _cut(steps: list[StepRow], most: int) -> tuple[list[StepRow], bool]:
    taken, left = list[StepRow](), most
    for step in steps:
        left -= rows.step_bytes(step)
        if left < 0 and taken:
            break
        taken.append(step)
    return taken, len(taken) < len(steps)
