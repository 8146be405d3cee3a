"""Mistakes on purpose: each function gives the plain worker one, so that tests can see the kit find it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import script
import worker
from script import Calls
from worker import Connection, Held, Json, Sender, Stop, Waiting, Worker

MISTAKES: dict[str, Callable[[], None]] = {}


def mistake(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """List a mistake under its name."""

    def listed(make: Callable[[], None]) -> Callable[[], None]:
        MISTAKES[name] = make
        return make

    return listed


def put(owner: Any, name: str, function: Any) -> Any:
    """Replace a method; return the right one."""
    right = getattr(owner, name)
    setattr(owner, name, function)
    return right


@mistake("no-fence")
def _no_fence() -> None:
    right = put(Held, "named", lambda held: {k: v for k, v in right(held).items() if k != "fence"})


@mistake("no-token")
def _no_token() -> None:
    right = put(Held, "named", lambda held: {k: v for k, v in right(held).items() if k != "token"})


@mistake("drops-result")
def _drops_result() -> None:
    def lost(_self: Connection, path: str) -> None:
        if path == "/leases/batch":
            raise Stop

    put(Connection, "lost", lost)


@mistake("trusts-proxies")
def _trusts_proxies() -> None:
    """Whatever comes with a status is the word of the server."""
    put(Connection, "problem", lambda _self, error: {"code": "not-found", "detail": str(error)})


@mistake("next-seq")
def _next_seq() -> None:
    """After a lost answer the worker takes the next number."""

    def send(held: Held, op: str, **fields: Any) -> Json:
        try:
            return right(held, op, **fields)
        except Stop:
            if held.gone:
                raise
            held.seq += 1
            return right(held, op, **fields)

    _drops_result()
    right = put(Held, "send", send)


@mistake("work-thread")
def _work_thread() -> None:
    """One thread for steps and heartbeats: whoever is first holds the other up."""
    turn = threading.Lock()

    def beat(self: Worker) -> None:
        with turn:
            right_beat(self)

    def step_of(calls: Calls, ledger: str, op: Json) -> Any:
        with turn:
            return right_step(calls, ledger, op)

    right_beat = put(Worker, "beat", beat)
    right_step = put(script, "step_of", step_of)


@mistake("no-heartbeat")
def _no_heartbeat() -> None:
    put(Worker, "beats", lambda _self: None)


@mistake("long-lease")
def _long_lease() -> None:
    worker.LEASE_MS = 30_000


@mistake("no-register")
def _no_register() -> None:
    put(Worker, "register", lambda _self: None)


@mistake("seq-from-zero")
def _seq_from_zero() -> None:
    def begin(held: Held, *args: Any) -> None:
        right(held, *args)
        held.seq = 0

    right = put(Held, "__init__", begin)


@mistake("same-seq")
def _same_seq() -> None:
    def send(held: Held, op: str, **fields: Any) -> Json:
        held.seq = 1
        return right(held, op, **fields)

    right = put(Held, "send", send)


@mistake("rounds-numbers")
def _rounds_numbers() -> None:
    put(
        Connection,
        "parsed",
        lambda _self, text: json.loads(text, parse_int=lambda digits: int(float(digits))),
    )


@mistake("strict-fields")
def _strict_fields() -> None:
    def parsed(self: Connection, text: bytes) -> Json:
        found = right(self, text)
        if "x" in found:
            raise worker.Refused("unknown field x")
        return found

    right = put(Connection, "parsed", parsed)


@mistake("eager")
def _eager() -> None:
    put(Connection, "patience", lambda _self, _problem, _wait: 0.01)


@mistake("ends-at-503")
def _ends_at_503() -> None:
    put(Connection, "patience", lambda _self, _problem, _wait: os._exit(4))


@mistake("ignores-401")
def _ignores_401() -> None:
    put(Connection, "refused", lambda _self, _status, _problem: None)


@mistake("ignores-sigterm")
def _ignores_sigterm() -> None:
    put(Worker, "stop", lambda _self: None)


@mistake("no-release")
def _no_release() -> None:
    def check_stop(calls: Calls) -> None:
        if calls.held.gone or calls.held.worker.stopping.is_set():
            raise Stop

    put(Calls, "check_stop", check_stop)


@mistake("batch-as-one")
def _batch_as_one() -> None:
    def answers(self: Sender, batch: list[Waiting]) -> list[Json | None]:
        found = right(self, batch)
        return [None] * len(batch) if any("problem" in (one or {}) for one in found) else found

    right = put(Sender, "answers", answers)


@mistake("ignores-lost")
def _ignores_lost() -> None:
    def send(held: Held, op: str, **fields: Any) -> Json:
        try:
            return right(held, op, **fields)
        except Stop:
            held.gone, held.seq = False, held.seq + 1
            return {"kept": [], "settled": [], "more": False}

    right = put(Held, "send", send)


@mistake("ignores-pause")
def _ignores_pause() -> None:
    _ignores_lost()


@mistake("ignores-cancel")
def _ignores_cancel() -> None:
    put(Worker, "told", lambda _self, _held, _news: None)


@mistake("wall-clock")
def _wall_clock() -> None:
    put(Held, "now", lambda held: 1000 * time.time() - held.lease["claimed_at"] / 1000)


@mistake("hoards")
def _hoards() -> None:
    put(Worker, "wanted", lambda _self, _free: 100)


@mistake("time-back")
def _time_back() -> None:
    put(Calls, "latest_now", lambda _self: 0)


@mistake("early-clock")
def _early_clock() -> None:
    """Lease time begins before the claim was sent."""
    put(Worker, "origin", lambda _self, asked: asked)


@mistake("mangles-names")
def _mangles_names() -> None:
    """The encoder replaces what is no valid text, and the record has another name than the code."""

    def step_of(calls: Calls, ledger: str, op: Json) -> Any:
        return right_step(calls, ledger, {**op, "key": op["step"] + "\udcff"} if "odd" in op else op)

    def send(held: Held, op: str, **fields: Any) -> Json:
        for one in fields.get("steps", []):
            one["key"] = one["key"].replace("\udcff", "?")
        return right_send(held, op, **fields)

    right_step, right_send = put(script, "step_of", step_of), put(Held, "send", send)


@mistake("sleeps-until")
def _sleeps_until() -> None:
    def sleep(calls: Calls, milliseconds: float) -> None:
        at = time.gmtime(time.time() + milliseconds / 1000)
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", at)
        calls.wait({"key": calls.key("sleep"), "kind": "sleep", "until": until})

    put(Calls, "sleep", sleep)


@mistake("counts-from-zero")
def _counts_from_zero() -> None:
    def key(calls: Calls, name: str, given: str | None = None) -> str:
        count = calls.held.used[name] = calls.held.used.get(name, -1) + 1
        return given or (f"{name}#{count}" if count else name)

    put(Calls, "key", key)


@mistake("bare-idempotency-key")
def _bare_idempotency_key() -> None:
    right = put(script, "post", lambda url, said: right(url, {**said, "key": said["key"].partition(":")[2]}))


@mistake("repeats-steps")
def _repeats_steps() -> None:
    right = put(
        Calls,
        "recorded",
        lambda calls, key: None if key in {"a", "b"} and right(calls, key) else right(calls, key),
    )


@mistake("records-later")
def _records_later() -> None:
    """The code gets the value of a step while its checkpoint is still on its way."""

    def send(held: Held, op: str, **fields: Any) -> Json:
        if op == "checkpoint":
            late.setdefault(held.run, []).extend(fields["steps"])
            return {"kept": []}
        steps = late.pop(held.run, [])
        if steps:
            right(held, "checkpoint", steps=steps)
        return right(held, op, **fields)

    late: dict[str, list[Json]] = {}
    right = put(Held, "send", send)


@mistake("retries-fatal")
def _retries_fatal() -> None:
    put(Calls, "is_last", lambda _self, _error, tries, most: tries >= most)


@mistake("retries-for-ever")
def _retries_for_ever() -> None:
    put(script, "may_retry", lambda _held: True)


@mistake("keeps-waiting")
def _keeps_waiting() -> None:
    def wait(calls: Calls, step: Json) -> Json:
        calls.held.send("checkpoint", steps=[{**step, "status": "waiting"}])
        time.sleep(60)
        raise Stop

    put(Calls, "wait", wait)


@mistake("ignores-settled")
def _ignores_settled() -> None:
    put(Calls, "parked", lambda _self, _answer: time.sleep(60))


@mistake("one-page")
def _one_page() -> None:
    right = put(Held, "page", lambda held, after: {**right(held, after), "more": False})
