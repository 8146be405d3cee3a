"""start, claim, commit: the queue and its holders."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import DuplicateRun, HoldfastError, KeyReused, UnknownRun
from holdfast.records import Ask, Claim, Item, NewRun, Started, Verdict

from .calls import Calls, json_text


class _Answer(msgspec.Struct):
    """What became of one start."""

    id: UUID
    created: bool = False
    error: str = ""


_ANSWERS = msgspec.json.Decoder(list[_Answer])
_CLAIMS = msgspec.json.Decoder(list[Claim])
_VERDICTS = msgspec.json.Decoder(list[Verdict])


def started(runs: Sequence[NewRun], answers: str) -> list[Started | HoldfastError]:
    """Answers of `start`, in order."""
    return [_started(run, answer) for run, answer in zip(runs, _ANSWERS.decode(answers), strict=True)]


def _started(run: NewRun, answer: _Answer) -> Started | HoldfastError:
    match answer.error:
        case "":
            return Started(answer.id, created=answer.created)
        case "key_reused":
            return KeyReused(run.key or "", answer.id)
        case "duplicate_run":
            return DuplicateRun(answer.id)
        case _:
            return UnknownRun(answer.id)


class QueueRoom(Calls):
    """A part of the store."""

    async def start(
        self, runs: Sequence[NewRun], connection: Any = None
    ) -> builtins.list[Started | HoldfastError]:
        return started(runs, await self._call("start", json_text(runs))) if runs else []

    async def claim(self, ask: Ask) -> builtins.list[Claim]:
        return await self._ask(_CLAIMS, "claim", json_text(ask)) if ask.limit > 0 else []

    async def commit(self, batch: Sequence[Item]) -> builtins.list[Verdict]:
        raise NotImplementedError
