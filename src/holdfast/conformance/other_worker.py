"""Another worker: the kit itself claims and writes runs over the protocol, past all faults."""

from __future__ import annotations

from typing import Any

from .faults import Answer
from .stage import TYPE, Script, Stage
from .traffic import BATCH, CLAIM

NAME = "conformance-other"


class OtherWorker:
    """A worker of the kit. It never works while the claims of the program are let through."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seq: dict[tuple[str, int], int] = {}

    async def claimed(self, script: Script) -> dict[str, Any]:
        """Claim the run, and return its lease."""
        body = {"worker": NAME, "runtime": "conformance", "types": [TYPE], "slots": 1, "lease_ms": 60_000}
        answer = await self._stage.api.ask(CLAIM, body, self._stage.other_key)
        for lease in _checked(answer)["leases"]:
            if lease["run"] == script.run:
                found: dict[str, Any] = lease
                return found
        raise RuntimeError(f"the kit could not claim run {script.run}: {answer.value}")

    async def send(self, lease: dict[str, Any], op: str, **fields: Any) -> dict[str, Any]:
        """Send one item of a lease; return its answer."""
        key = (lease["run"], lease["fence"])
        self._seq[key] = self._seq.get(key, 0) + 1
        item = {"op": op, "run": lease["run"], "fence": lease["fence"], "token": lease["token"]}
        body = {"items": [{**item, "seq": self._seq[key], "lease_ms": 60_000, **fields}]}
        (answer,) = _checked(await self._stage.api.ask(BATCH, body, self._stage.other_key))["items"]
        if "problem" in answer:
            raise RuntimeError(f"the kit's own {op} was refused: {answer['problem']}")
        found: dict[str, Any] = answer
        return found


def _checked(answer: Answer) -> dict[str, Any]:
    if answer.status != 200:
        raise RuntimeError(f"the kit's own request was refused: {answer.status} {answer.value}")
    found: dict[str, Any] = answer.value
    return found
