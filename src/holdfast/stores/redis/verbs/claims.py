"""claim: take due runs, in the order of the queues, as far as registry and limits allow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from holdfast.bounds import ROW_BYTES, text_bytes
from holdfast.records import Ask, Claim
from holdfast.stores.claiming.rules import Rules
from holdfast.stores.redis import plain_claims
from holdfast.stores.redis.batches import AT_ONCE, IN_SCRIPT
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.indexes import placed
from holdfast.stores.redis.plain import holding_of
from holdfast.stores.redis.snapshot import Snapshot

from . import limiting
from .due_runs import claim, queues_of

QUEUES = 100  # queues that one script looks at
STALE_TRIES = 3  # how often rules are read again that somebody has changed meanwhile
CLAIM_ROUNDS = 200  # others may be faster so often


class KnownRules(NamedTuple):
    """Registry and limits as this process has read them, and their revision."""

    revision: str
    rules: Rules

    @property
    def limits(self) -> bool:
        """True when a claim has to look at limits or weights."""
        return bool(self.rules.scopes) or self.rules.weighs


class ClaimVerb(Core):
    """The verb `claim`, as a mixin of the store."""

    _rules: KnownRules | None
    _found: int = 0  # runs that the last claim has taken

    async def claim(self, ask: Ask) -> list[Claim]:
        """Take due runs: by one script where no limit applies, else by the machine."""
        for _ in range(STALE_TRIES):
            rules = self._rules or await self._learn_rules()
            if not self.fast or rules.limits:
                break
            claims = await self._plain_claim(ask, rules)
            if claims is not None:
                return claims
            self._rules = None
        return await self._limited_claim(ask)

    async def _learn_rules(self) -> KnownRules:
        def read(snapshot: Snapshot) -> KnownRules:
            book = limiting.Limiting(snapshot)
            return KnownRules(f"{snapshot.epoch}:{book.revision}", book.rules())

        self._rules = await self._read(read)
        return self._rules

    async def _plain_claim(self, ask: Ask, known: KnownRules) -> list[Claim] | None:
        """Take due runs by the script claim. None: somebody has changed the rules meanwhile."""
        types = [type_ for type_ in dict.fromkeys(ask.types) if known.rules.open_to(type_, ask.runtime)]
        queues = queues_of(self._names, ask, types)
        if len(queues) > QUEUES:
            queues = await self._first_queues(queues)
        taken: list[Claim] = []
        left, bytes_, stopped = ask.limit, ask.bytes, ""
        while left > 0:  # also without a queue: the script says when the rules have changed
            sizes = [min(IN_SCRIPT, left - at) for at in range(0, min(left, AT_ONCE), IN_SCRIPT)]
            if max(self._found, len(taken)) < IN_SCRIPT:
                del sizes[1:]  # the first will probably take all that there is
            calls = plain_claims.calls(self._batch, self._names, ask, queues, known.revision, sizes, bytes_)
            claims: list[Claim] = []
            for said in await self._run_all("claim", calls):
                if said[0] in {"stale", "cut"}:
                    stopped = stopped or said[0]
                    continue
                until, *found = said
                for answer in found:
                    claims.append(one := plain_claims.claim(answer, int(until)))
                    self._holdings.learn(one.id, plain_claims.holding(self._names, ask.worker, answer))
                    bytes_ -= plain_claims.bytes_of(answer)
            taken += claims
            left -= len(claims)
            if stopped == "cut" and not taken:  # behind many runs that may not be taken there may be others
                return await self._limited_claim(ask)
            # The limits of runs that have crashed count over one script: the rest comes with the next claim.
            if stopped or len(claims) < sum(sizes) or any(one.crashes for one in claims):
                break
        self._found = len(taken)
        return taken if taken or stopped != "stale" else None

    async def _first_queues(self, queues: Sequence[str]) -> list[str]:
        """Return the queues with the first due runs: as many as a script looks at. The others have no run
        that is among the first so many."""
        now = time.time_ns() // 1000 + self._ahead if self._clock is None else self._clock()
        firsts = await self._connections.ask(
            [("ZRANGEBYLEX", one, "-", "+", "LIMIT", 0, 1) for one in queues]
        )
        found = [(first[0], queue) for first, queue in zip(firsts, queues, strict=True) if first]
        due = [one for one in found if placed(one[0])[1] <= now]
        later = [queue for first, queue in found if placed(first)[1] > now]
        if later:
            answers = await self._connections.ask([("heads", one) for one in later])
            for queue, heads in zip(later, answers, strict=True):
                due += [(head, queue) for head in heads if placed(head)[1] <= now][:1]
        return [queue for _, queue in sorted(due)[:QUEUES]]

    async def _limited_claim(self, ask: Ask) -> list[Claim]:
        """Take due runs as far as the limits allow. A run that another worker has taken meanwhile is left
        out, and another one is looked for."""
        taken: list[Claim] = []
        for _ in range(CLAIM_ROUNDS):
            left = msgspec.structs.replace(
                ask, limit=min(ask.limit - len(taken), IN_SCRIPT), bytes=ask.bytes - sum(map(_bytes, taken))
            )
            if left.limit <= 0:
                break
            crashes = [one.crashes for one in taken]
            weighs = self._rules is not None and self._rules.rules.weighs
            snapshot = Snapshot(self._names, self._clock)
            work = partial(claim, ask=left, crashes=crashes, weighs=weighs)
            rows, claims, apart = await self._decided(snapshot, work)
            if apart and self._rules is not None and self._rules.limits:
                self._rules = None  # there are no limits any more: the next claim is plain
            if not claims:
                if snapshot.is_changed:
                    await self._save(snapshot)
                break
            applied = await self._save(snapshot)
            mine = applied if apart else applied * len(claims)  # one group, which has them all
            for row, one, is_mine in zip(rows, claims, mine, strict=True):
                if is_mine:
                    taken.append(one)
                    self._holdings.learn(one.id, holding_of(self._names, row))
            if all(mine) and len(claims) < left.limit:
                break  # there are no more
        return taken


def _bytes(claim: Claim) -> int:
    if claim.unread:
        return 0
    steps = sum(map(_step_bytes, claim.steps))
    return text_bytes(claim.params) + text_bytes(claim.labels_json) + steps


def _step_bytes(step: object) -> int:
    texts = (getattr(step, name) for name in ("key", "output", "error_json", "ask", "wake"))
    return ROW_BYTES + sum(map(text_bytes, texts))
