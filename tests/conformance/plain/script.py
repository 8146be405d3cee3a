"""The workflow conformance.script.v1 of the plain worker, and the calls that it is made of."""

from __future__ import annotations

import json
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from worker import TYPE, Failed, Held, Json, Stop

Act = Callable[[str], Any]
SECONDS = 60  # the ledger may take so long
IN_PLACE_MS = 1000


class Fatal(Exception):
    """A failure of a step that no retry helps."""


class StepFailed(Failed):
    """A step failed for good."""


class Calls:
    """The calls of the code of a run: steps and waits, answered from the record when they are there."""

    def __init__(self, held: Held) -> None:
        self.held = held

    def key(self, name: str, given: str | None = None) -> str:
        """Return the key of a call; names are counted, keys of the user are not."""
        if given is not None:
            return given
        count = self.held.used[name] = self.held.used.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def recorded(self, key: str) -> Json | None:
        """Return the recorded step, if it has an outcome."""
        step = self.held.record.get(key)
        return step if step is not None and step["status"] in {"succeeded", "failed"} else None

    def step(self, op: Json, act: Act) -> Any:
        """Run a step, or answer it from the record."""
        key = self.key(op["step"], op.get("key"))
        found = self.recorded(key) or self.tried(key, act, op)
        if found["status"] == "failed":
            raise StepFailed(found["error"])
        return found.get("output")

    def tried(self, key: str, act: Act, op: Json) -> Json:
        """Try the function until it succeeds or fails for good; return the step as it is recorded."""
        most = op.get("attempts") or self.held.lease["max_attempts"]
        tries = self.held.record.get(key, {}).get("attempts", 0)
        while True:
            self.check_stop()
            began, tries = self.held.now(), tries + 1
            row: Json = {"key": key, "attempts": tries, "started_ms": began}
            try:
                return self.written({**row, "output": act(f"{self.held.run}:{key}")})
            except Failed:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the function raises is its failure
                is_last = self.is_last(error, tries, most)
                kind = "fatal" if isinstance(error, Fatal) else "exhausted" if is_last else "error"
                said: Json = {"kind": kind, "type": type(error).__name__, "message": str(error), "step": key}
                said |= {"attempt": tries, "max_attempts": most, "traceback": traceback.format_exc()}
                row |= {"max_attempts": most, "error": said}
            if is_last:
                return self.written({**row, "status": "failed"})
            self.retry(said, op.get("delay_ms", 1000.0 * 2**tries), {**row, "status": "ready"})

    def is_last(self, error: Exception, tries: int, most: int) -> bool:
        """Return True if a step is not tried again after this failure."""
        return isinstance(error, Fatal) or tries >= most

    def written(self, step: Json) -> Json:
        """Record a step; return it, or what was recorded before."""
        answer = self.held.send("checkpoint", steps=[step])
        if any(one["key"] == step["key"] for one in answer["kept"]):
            self.held.load()
            return self.held.record[step["key"]]
        self.held.attempt = 1
        return {"status": "succeeded", **step}

    def retry(self, error: Json, delay_ms: float, *steps: Json) -> None:
        """Record a failed try, and wait here for the next one if that is soon."""
        rows = [{**one, "delay_ms": delay_ms} for one in steps]
        in_place = delay_ms <= IN_PLACE_MS
        self.held.send(
            "retry", steps=rows, error=error, delay_ms=delay_ms, refund=bool(rows), in_place=in_place
        )
        self.held.worker.stopping.wait(delay_ms / 1000)

    def check_stop(self) -> None:
        """Begin no step when the run is lost, or the worker is to stop; then give the run back."""
        if self.held.gone:
            raise Stop
        if self.held.worker.stopping.is_set():
            self.held.send("release")

    def wait(self, step: Json) -> Json:
        """Wait for the outcome of a step; park the run unless the outcome is there."""
        key, held = step["key"], self.held
        while (found := self.recorded(key)) is None:
            new = [] if key in held.record else [{**step, "status": "waiting", "started_ms": held.now()}]
            self.parked(held.send("park", steps=new))
        return found

    def parked(self, answer: Json) -> None:
        """Take what a park was told: the run goes on, because an outcome is there already."""
        self.held.learn(answer["settled"])
        if answer["kept"] or answer["more"]:
            self.held.load()

    def sleep(self, milliseconds: float) -> None:
        """Sleep."""
        self.wait({"key": self.key("sleep"), "kind": "sleep", "delay_ms": milliseconds})

    def event(self, topic: str, timeout_ms: float | None) -> Any:
        """Wait for an event, and return its payload."""
        step = {"key": self.key(f"event:{topic}"), "kind": "event", "topic": topic, "delay_ms": timeout_ms}
        found = self.wait(step)
        return "timeout" if found["status"] == "failed" else found["output"]["payload"]

    def approval(self, name: str, ask: str) -> bool:
        """Wait for a decision."""
        step = {"key": self.key(name), "kind": "approval", "ask": {"ask": ask, "data": None}}
        return bool(self.wait(step)["output"]["approved"])

    def now(self) -> int:
        """Return the recorded time in microseconds."""
        key, held = self.key("now"), self.held
        if self.recorded(key) is None:
            at = max(held.lease["claimed_at"] + int(1000 * held.now()), self.latest_now())
            held.record[key] = self.written({"key": key, "kind": "now", "output": at})
        return int(held.record[key]["output"])

    def latest_now(self) -> int:
        """Return the latest time of the record: time does not go back within a run."""
        return max(
            (one["output"] for one in self.held.record.values() if one.get("kind") == "now"), default=0
        )

    def child(self, params: Json) -> Any:
        """Call a child run, and return its result."""
        child = {"type": TYPE, "params": params}
        found = self.wait({"key": self.key(TYPE.rpartition(".")[0]), "kind": "child", "child": child})
        if found["status"] == "failed":
            raise StepFailed({"kind": "child_failed", "message": "the child failed"})
        return found["output"]["result"]


def run_script(held: Held) -> None:
    """Execute a run to its end, or until it waits or is lost."""
    calls = Calls(held)
    while True:
        held.used = {}
        try:
            held.send("complete", result=body(calls, held.lease["params"]))
        except Failed as failed:
            held.send("fail", error=failed.error)
        except Exception as error:  # noqa: BLE001 - whatever the code raises is its failure
            said = {"type": type(error).__name__, "message": str(error)}
            if not may_retry(held):
                held.send("fail", error={"kind": "exhausted", **said})
            calls.retry({"kind": "error", **said}, 1000.0 * 2**held.attempt)
            held.attempt += 1


def may_retry(held: Held) -> bool:
    """Return True if a run whose code failed has a try left."""
    return bool(held.attempt < held.lease["max_attempts"])


def body(calls: Calls, params: Json) -> list[Any]:
    """The workflow: execute the instructions in their order."""
    out: list[Any] = []
    for op in params["do"]:
        if "step" in op:
            out.append(step_of(calls, params["ledger"], op))
        if "map" in op:
            base = calls.key(op["map"])
            items = [{**one, "step": op["map"], "key": f"{base}[{n}]"} for n, one in enumerate(op["each"])]
            out.append([step_of(calls, params["ledger"], one) for one in items])
        if "sleep" in op:
            calls.sleep(op["sleep"])
            out.append("slept")
        if "event" in op:
            out.append(calls.event(op["event"], op.get("timeout_ms")))
        if "approval" in op:
            out.append(calls.approval(op["approval"], op.get("ask", "")))
        if "now" in op:
            out.append(calls.now() // 1000)
        if "child" in op:
            out.append(calls.child(op["child"]))
        if "raise" in op:
            raise RuntimeError(op["raise"])
    return out


def step_of(calls: Calls, ledger: str, op: Json) -> Any:
    """One instruction `step`."""

    def act(idempotency_key: str) -> Any:
        post(ledger, {"run": calls.held.run, "step": op["step"], "key": idempotency_key})
        time.sleep(op.get("block_ms", 0) / 1000)
        letter = op.get("letter", "x")
        return letter * ((op["bytes"] - 2) // len(letter.encode())) if "bytes" in op else op.get("value")

    try:
        value = calls.step(op, act)
    except StepFailed:
        if "or" not in op:
            raise
        return op["or"]
    return len(value) if "bytes" in op else value


def post(url: str, said: Json) -> None:
    """Tell the ledger that a step runs; it may let the step fail."""
    request = urllib.request.Request(url, json.dumps(said).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass
    except urllib.error.HTTPError as error:
        raise (Fatal if error.code == 422 else RuntimeError)(error.read().decode()) from None
