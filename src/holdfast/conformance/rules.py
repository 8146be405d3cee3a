"""The rules that every request of a worker keeps, in every case: fence, token, numbers, times, key.

`Rules` sees each request before the server does, and each answer before the worker does. It notes the first
mistake; the case that runs then ends with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .mistakes import Wrong
from .traffic import BATCH, CLAIM, HEARTBEAT, Exchange

CLOCK_SLACK_MS = 1_000.0  # a time of a lease may be wrong by so much
# Fields that may differ when an item is sent again: they are news, and no part of what is recorded.
NEWS = frozenset({"known", "progress", "started_ms", "lease_ms", "shares", "traceparent"})

REFUSED = frozenset({400, 413, 422})  # a batch with one of these statuses is not to be sent again as it is

# Mistakes of a worker that writes after one of these answers.
AFTER = {"paused": "pause-ignored", "cancelled": "cancel-ignored", "lease-lost": "works-without-lease"}


class _Held(msgspec.Struct):
    """One lease: its last item, and whether the answer to it has come."""

    tokens: set[Any]
    asked_at: float
    answered_at: float  # when the worker was told of it
    seq: int = 0
    item: dict[str, Any] | None = None
    is_answered: bool = True
    is_lost: bool = False  # the answer to the last item was lost
    is_refused: bool = False
    over: str = ""


class Rules:
    """Checks requests and answers; `first` is the first mistake since `begin`."""

    def __init__(self, lease_ms: float) -> None:
        self._lease_ms, self.key = lease_ms, ""
        self._held: dict[tuple[str, int], _Held] = {}
        self.first: Wrong | None = None
        self.expected: frozenset[str] = frozenset()
        self._claiming_since: float | None = None  # the first claim since the last answer to one

    def begin(self, expected: frozenset[str]) -> None:
        """Begin a case. expected: the codes of problems that it provokes."""
        self.first, self.expected = None, expected

    def request(self, exchange: Exchange) -> None:
        """Check a request that has come."""
        try:
            self._check_request(exchange)
        except Wrong as wrong:
            self.first = self.first or wrong

    def answer(self, exchange: Exchange) -> None:
        """Check an answer that goes to the worker now, or is lost."""
        try:
            self._check_answer(exchange)
        except Wrong as wrong:
            self.first = self.first or wrong

    # Requests.

    def _check_request(self, exchange: Exchange) -> None:
        if exchange.headers.get("authorization") != f"Bearer {self.key}":
            raise Wrong("no-key", f"POST {exchange.path}")
        body = exchange.body if isinstance(exchange.body, dict) else {}
        if exchange.path == CLAIM:
            self._claiming_since = self._claiming_since or exchange.at
            self._check_lease_time(body, "a claim")
        if exchange.path == HEARTBEAT:
            if exchange.leases:
                self._check_lease_time(body, "a heartbeat")
            for entry in exchange.leases:
                self._lease_of(entry, "a heartbeat")
        if exchange.path == BATCH:
            self._check_batch(exchange)

    def _check_lease_time(self, body: dict[str, Any], where: str) -> None:
        given = body.get("lease_ms")
        if given != self._lease_ms:
            said = "no `lease_ms`" if given is None else f"`lease_ms` {given}"
            raise Wrong("wrong-lease-time", f"{said} in {where}, not {self._lease_ms:g}")

    def _lease_of(self, entry: dict[str, Any], where: str) -> _Held:
        """Return the lease that an item or an entry names; a wrong fence or token is a mistake."""
        fence, token, run = entry.get("fence"), entry.get("token"), entry.get("run")
        if fence is None:
            raise Wrong("no-fence", f"{where} for run {run}")
        if token is None:
            raise Wrong("no-token", f"{where} for run {run}")
        if (held := self._found(entry)) is None:
            raise Wrong(
                "wrong-fence", f"{where} with fence {fence!r}, which no claim has given for run {run}"
            )
        if token not in held.tokens:
            raise Wrong("wrong-fence", f"{where} with fence {fence} and the token of another lease")
        return held

    def _found(self, entry: dict[str, Any]) -> _Held | None:
        fence = entry.get("fence")
        return self._held.get((str(entry.get("run")), fence)) if isinstance(fence, int) else None

    def _check_batch(self, exchange: Exchange) -> None:
        seen = set[Any]()
        for item in exchange.items:
            op, run = item.get("op"), item.get("run")
            held = self._lease_of(item, f"`{op}`")
            if run in seen:
                raise Wrong("two-items", f"run {run}")
            seen.add(run)
            self._check_number(held, item)
            self._check_times(held, item, exchange.at)
            if op == "checkpoint":
                self._check_lease_time(item, "a checkpoint")

    def _check_number(self, held: _Held, item: dict[str, Any]) -> None:
        seq, op = item.get("seq"), item.get("op")
        is_same = held.item is not None and seq == held.seq and _content(item) == _content(held.item)
        if is_same:
            held.is_lost = False
            return
        if held.over:
            raise Wrong(
                AFTER.get(held.over, "writes-after-end"), f"`{op}` with seq {seq} after `{held.over}`"
            )
        if held.is_lost and held.item is not None:
            before = f"`{held.item.get('op')}` with seq {held.seq}, whose answer was lost"
            raise Wrong("dropped-result", f"`{op}` with seq {seq} came in place of {before}")
        if held.item is not None and seq == held.seq:
            if not held.is_refused:
                raise Wrong(
                    "changed-item", f"`{op}` with seq {seq}, which was `{held.item.get('op')}` before"
                )
        elif seq != held.seq + 1:
            raise Wrong("wrong-seq", f"`{op}` with seq {seq!r} where {held.seq + 1} is next")
        elif not held.is_answered:
            raise Wrong("next-too-soon", f"`{op}` with seq {seq}, and seq {held.seq} has no answer yet")
        held.seq, held.item, held.is_answered, held.is_refused = int(seq), item, False, False

    def _check_times(self, held: _Held, item: dict[str, Any], at: float) -> None:
        steps = [one for one in item.get("steps") or [] if isinstance(one, dict)]
        elapsed_ms = 1000 * (at - held.answered_at)
        for given in (item.get("started_ms"), *(one.get("started_ms") for one in steps)):
            if not isinstance(given, int | float):
                continue
            if not -CLOCK_SLACK_MS <= given <= elapsed_ms + CLOCK_SLACK_MS:
                seen = f"`started_ms` is {given:.0f}, and the claim was answered {elapsed_ms:.0f} ms ago"
                # A worker that counts from before its claim, or from one that was cut, compares no clocks.
                is_early = 0 <= given <= 1000 * (at - held.asked_at) + CLOCK_SLACK_MS
                raise Wrong("time-ahead" if is_early else "wrong-clock", seen)

    # Answers.

    def _check_answer(self, exchange: Exchange) -> None:
        for lease in exchange.granted:
            self._note_lease(lease, exchange)
        if exchange.path == CLAIM and exchange.reached:
            self._claiming_since = None
        if exchange.path == HEARTBEAT and isinstance(exchange.answer, dict):
            for stray in exchange.answer.get("strays") or []:
                self._note_lease(stray, exchange)
        if not exchange.reached:
            for item in exchange.items:
                self._note_loss(item)
            return
        for item, answer in zip(exchange.items, exchange.answers, strict=False):
            self._note_answer(item, answer)
        if exchange.status in REFUSED:
            for item in exchange.items:
                self._note_refusal(item)
        self._check_refusal(exchange)

    def _note_lease(self, lease: dict[str, Any], exchange: Exchange) -> None:
        """Note a lease; the token of a stray may be another one than that of its claim, which was lost."""
        key = str(lease.get("run")), int(lease.get("fence", 0))
        asked_at = min(exchange.at, self._claiming_since or exchange.at)
        held = _Held(set(), asked_at, exchange.answered_at or exchange.at)
        self._held.setdefault(key, held).tokens.add(lease.get("token"))

    def _note_loss(self, item: dict[str, Any]) -> None:
        held = self._found(item)
        if held is not None and item.get("seq") == held.seq and not held.is_answered:
            held.is_lost = True

    def _note_refusal(self, item: dict[str, Any]) -> None:
        """Note that a whole batch was refused: the numbers of its items are free."""
        held = self._found(item)
        if held is not None and item.get("seq") == held.seq:
            held.is_answered = held.is_refused = True

    def _note_answer(self, item: dict[str, Any], answer: dict[str, Any]) -> None:
        held = self._found(item)
        if held is None or item.get("seq") != held.seq:
            return
        problem = answer.get("problem") or {}
        if (code := problem.get("code")) is None:
            held.is_answered = True
            status = answer.get("status")
            held.over = "" if status == "leased" else str(status)
        elif code == "lease-lost":
            held.is_answered, held.over = True, "lease-lost"
        elif not problem.get("retryable"):
            held.is_answered = held.is_refused = True
            if code not in self.expected:
                seen = f"`{item.get('op')}`: `{code}`, {problem.get('detail')}"
                raise Wrong("refused-item", seen)

    def _check_refusal(self, exchange: Exchange) -> None:
        """Note a request that the server itself refused: 400, 401, 403, 404, 413, 415, 422."""
        if exchange.fault or not 400 <= exchange.status < 500 or exchange.status in {408, 409, 429}:
            return
        problem = exchange.answer if isinstance(exchange.answer, dict) else {}
        if problem.get("code") not in self.expected:
            seen = f"POST {exchange.path}: {exchange.status} `{problem.get('code')}`, {problem.get('detail')}"
            raise Wrong("refused-request", seen)


def _content(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in NEWS and value is not None}
