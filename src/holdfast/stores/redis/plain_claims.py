"""Plain claims: where no limit applies, the script claim takes many runs in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.machine.durations import micros
from holdfast.records import MAX_ATTEMPTS, Ask, Claim, Step
from holdfast.records.traits import SHORT_LEASE_SECONDS

from .batches import Batch
from .names import Names
from .plain import Holding, Writes

# Places in the list FIELDS of claim.lua.
_TYPE, _TENANT, _CREATED_AT, _RUN_AT = 3, 4, 7, 8
# Places of the fields that few runs have, in the list RARE of claim.lua.
(
    _, _KIND, _CRASHES, _MAX_ATTEMPTS, _TIMEOUT_AT, _PARENT, _COST, _BUDGET, _ACCOUNT, _TRACE, _LOGS,
    _LIMIT_KEY, _TTL_SECONDS, _OWES, _PARENT_STEP, _API_KEY, _, _SURVIVED, _OPEN,
) = range(19)  # fmt: skip
Answer = list[Any]  # the answer of claim.lua about one run
_step = msgspec.json.Decoder(Step).decode


_NONE = (0,)  # takes no run that has crashed


def calls(
    batch_of: Callable[..., Batch],
    names: Names,
    ask: Ask,
    queues: Sequence[str],
    revision: str,
    sizes: Sequence[int],
    bytes_: int,
) -> list[Batch]:
    """Return calls of claim.lua, each for so many runs. They share the bytes. Where the number of crashed
    runs has a limit, only the first call takes some: one call does not know what the others have taken."""
    mine, shown = names.of("leased:worker", ask.worker), msgspec.json.encode(ask.worker).decode()
    lease, each, crashed = micros(ask.lease_seconds), bytes_ // len(sizes), ask.crashed or ()
    announces = ask.lease_seconds < SHORT_LEASE_SECONDS
    made = []
    for size in sizes:
        batch = batch_of(names("leases"), mine, names("pending"), *queues)
        batch.say(revision, names.tag, ask.worker, shown, lease, announces, size, each, crashed)
        made.append(batch)
        crashed = _NONE if crashed else ()
    return made


def claim(said: Answer, until: int) -> Claim:
    """Return the claim of one run. `until`: the end of its lease."""
    run, fence, attempt, _, fields, fits, texts, steps, rare, account = said
    return Claim(
        id=UUID(run), type=fields[_TYPE], tenant=fields[_TENANT], params=(texts and texts[0]) or "null",
        fence=int(fence), attempt=int(attempt), created_at=int(fields[_CREATED_AT]), lease_until=until,
        steps=_steps(steps) if steps else (), labels_json=texts[1] if texts else None,
        run_at=int(fields[_RUN_AT]), unread=not fits, **(_rare(rare, account) if rare else _PLAIN),
    )  # fmt: skip


_PLAIN: dict[str, Any] = {"crashes": 0, "max_attempts": MAX_ATTEMPTS}


def _rare(values: Answer, account: Answer) -> dict[str, Any]:
    """Return the fields of a claim that few runs have."""
    left = int(account[0]) - int(account[1] or 0) if account and account[0] is not None else None
    timeout_at, parent, budget = values[_TIMEOUT_AT], values[_PARENT], values[_BUDGET]
    return {
        "crashes": int(values[_CRASHES] or 0), "logs": int(values[_LOGS] or 0), "left": left,
        "max_attempts": MAX_ATTEMPTS if values[_MAX_ATTEMPTS] is None else int(values[_MAX_ATTEMPTS]),
        "timeout_at": None if timeout_at is None else int(timeout_at), "kind": values[_KIND] or "code",
        "parent": None if parent is None else UUID(parent), "cost": int(values[_COST] or 0),
        "budget": None if budget is None else int(budget), "trace": values[_TRACE] or "",
        "account": None if values[_ACCOUNT] is None else UUID(values[_ACCOUNT]),
    }  # fmt: skip


def _steps(words: Sequence[str]) -> tuple[Step, ...]:
    return tuple(sorted(map(_step, words[1::2]), key=lambda step: step.seq))


def bytes_of(said: Answer) -> int:
    """Return the bytes of values in the answer."""
    return int(said[3].split(" ", 3)[2]) if said[5] else 0


def holding(names: Names, worker: str, said: Answer) -> Holding | None:
    """Return what plain writes of the run need. None: it has none."""
    run, _, attempt, text, fields, *_ = said
    rare = said[8]
    who, *numbers = text.split(" ")
    if who == "-":
        return None
    is_tried = attempt != "1" or bool(rare and (rare[_CRASHES] or rare[_SURVIVED]))
    named = (fields[_TYPE], fields[_TENANT], worker)
    made = Holding(names, run, named, Writes(int(who), *map(int, numbers)), is_tried=is_tried)
    if rare:
        made.can_end = rare[_TTL_SECONDS] is None and rare[_OWES] is None and not rare[_OPEN]
        made.add(
            names, limit_key=rare[_LIMIT_KEY], has_timeout=rare[_TIMEOUT_AT] is not None,
            parent=rare[_PARENT], parent_step=rare[_PARENT_STEP], api_key=rare[_API_KEY],
        )  # fmt: skip
    return made
