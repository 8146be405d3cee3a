"""SQL functions of docs/sql.md, called with hostile records; and the whole stream of statements."""

# ruff: noqa: S608  # the words are ours, hostile values are parameters

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .calls import KEY_ID
from .statements import OURS, RUN, STATUSES, TOPICS, TYPES, Kinds, Plain, Source, Statement


class Functions(Source):
    """Calls of functions by producers, workers, people, readers, operators and keepers."""

    @property
    def _functions(self) -> Kinds:
        return (
            (7, self._emit),
            (5, self._start),
            (3, self._claim),
            (6, self._commit),
            (8, self._people),
            (5, self._readers),
            (5, self._operators),
            (4, self._keys),
            (3, self._keepers),
        )

    def _call(self, kind: str, function: str, *values: Any) -> Statement:
        return Statement(kind, f"select workflow.{function}", values)

    def _emit(self) -> Statement:
        s = self.values
        event = s.record(topic=lambda: s.one([*TOPICS, s.text()]), id=s.name, payload=s.json)
        for name, maker in {"tenant": s.name, "run": self._id, "keep_seconds": s.number}.items():
            if s.chance(0.15):
                event[name] = maker()
        if s.chance(0.25):
            return self._call(
                "emit", "deliver_event(%s, %s, %s, %s)", "default", s.name(), None, s.one([0, 1, 500, -1])
            )
        return self._call("emit", "emit(%s)", s.sent(event))

    def _start(self) -> Statement:
        s = self.values
        runs = []
        for _ in range(s.one([0, 1, 1, 2, 5])):
            run = s.record(
                id=self._new_id,
                type=self._type,
                params=s.json,
                digest=s.text,
                tenant=lambda: "default",
                priority=lambda: 100,
            )
            more: dict[str, Callable[[], Any]] = {
                "key": s.name,
                "run_at": s.number,
                "delay_seconds": s.number,
                "max_attempts": s.number,
                "labels": s.json,
                "timeout_seconds": s.number,
                "ttl_seconds": s.number,
                "budget": s.number,
                "limit_key": s.name,
                "parent": self._id,
                "parent_step": s.text,
                "by": s.text,
                "api_key": lambda: s.one([KEY_ID, s.text()]),
                "open_runs_max": s.number,
            }
            run |= {name: maker() for name, maker in more.items() if s.chance(0.1)}
            runs.append(run)
        return self._call("start", "start(%s)", s.sent(runs))

    def _claim(self) -> Statement:
        s = self.values
        ask = s.record(
            worker=s.name,
            types=lambda: [*TYPES],
            limit=lambda: s.one([1, 1, 10, 0, -1, 2**31]),
            lease_seconds=lambda: s.one([0.2, 1, 5, -1, 1e300]),
        )
        return self._call("claim", "claim(%s)", s.sent(ask))

    def _commit(self) -> Statement:
        """Commit for a holder, with the right fence most of the time."""
        s = self.values
        moves = ["checkpoint", "complete", "fail", "retry", "park", "release", "advance", "pause", "gone"]
        step = s.record(
            key=s.text,
            kind=lambda: s.one(["task", "event", "sleep", "child", "approval", "x"]),
            status=lambda: s.one(["succeeded", "failed", "waiting", "ready", "x"]),
            output=s.json,
            attempts=s.number,
            topic=lambda: s.one([*TOPICS, s.text()]),
        )
        item = s.record(
            number=lambda: s.one([1, 1, 2, 0, -1]),
            move=lambda: s.one(moves),
            result=s.json,
            error=s.json,
            last_error=s.text,
            kind=s.text,
            progress=s.json,
            lease_seconds=lambda: s.one([1, 30, -1, 1e300]),
            delay_seconds=s.number,
            steps=lambda: [step] * s.one([0, 1, 2]),
            trail=lambda: [{"type": s.text(), "data": s.json()}] * s.one([0, 1]),
            events=lambda: [{"topic": s.text(), "id": s.name(), "payload": s.json()}] * s.one([0, 0, 1]),
            starts=list,
            outbox=lambda: [{"id": s.name(), "sink": s.text(), "payload": s.json()}] * s.one([0, 0, 1]),
        )
        held = f"""select workflow.commit(json_build_array(
            (%s::jsonb || jsonb_build_object('run', r.id, 'fence', r.fence))::json), null, null, null, true)
            from {RUN} as r where {OURS} and r.status = 'leased' and r.id = coalesce(
                (select id from {RUN} where {OURS} and status = 'leased' order by random() limit 1), r.id)"""
        if s.chance(0.7):
            return Statement("commit", held, (s.sent(item),))
        batch = s.sent([{"run": str(self._id()), "fence": s.whole(), **item}])
        return self._call(
            "commit",
            "commit(%s, %s, %s, %s, %s, %s)",
            batch,
            *s.one([(None,) * 5, ("[]", "[]", "[]", False, "[]")]),
        )

    def _people(self) -> Statement:
        s, run = self.values, self._id()
        who, tenant = s.text(), s.one([None, "default", s.name()])
        calls: list[tuple[str, tuple[Any, ...]]] = [
            ("cancel(%s, %s, %s, %s)", (run, tenant, who, s.chance(0.5))),
            ("delete(%s, %s, %s, %s)", (run, tenant, who, s.one([0, -(2**63), 2**63 - 1]))),
            ("pause(%s, %s, %s)", (run, tenant, who)),
            ("resume(%s, %s, %s)", (run, tenant, who)),
            ("resume(%s, %s, %s, %s)", (run, tenant, who, s.one([None, 0, -1, 5, 2**62]))),
            ("retry_run(%s, %s, %s)", (run, tenant, who)),
            ("rewind(%s, %s, %s, %s, %s)", (run, s.text(), tenant, who, s.chance(0.5))),
            ("delete(%s, %s, %s)", (run, tenant, who)),
            ("restore(%s, %s, %s)", (run, tenant, who)),
            ("set_priority(%s, %s, %s, %s)", (run, s.one([None, 5, -1, 1000]), tenant, s.text())),
            ("append_step(%s, %s, %s, %s)", (run, s.text(), s.one([None, 1, -1, 0, 2**31 - 1]), tenant)),
            (
                "decide(%s, %s, %s, %s, %s, %s, %s)",
                (run, s.one(["GATE", s.text()]), s.chance(0.5), who, s.text(), None, tenant),
            ),
        ]
        return self._call("people", *_spread(s.one(calls)))

    def _readers(self) -> Statement:
        s, run = self.values, self._id()
        where = s.record(
            statuses=lambda: [s.one(STATUSES)], type=s.text, tenant=s.text, key=s.text, error=s.text,
            labels=lambda: {s.text(): s.text()}, roots=lambda: s.one([True, False, None]),
            created_since=s.text,
        )  # fmt: skip
        calls: list[tuple[str, tuple[Any, ...]]] = [
            ("get(%s, %s)", (run, None)),
            ("children(%s, %s, %s)", ([run], None, s.one([1, 0, -1, 10_000]))),
            ("list(%s, %s, %s)", (s.sent(where), s.one([1, 100, 0, -1, 2**31 - 1]), s.one([None, run]))),
            ("outlines(%s, %s, %s)", (s.sent(where), s.one([1, 100, 0, -1, 2**31 - 1]), s.one([None, run]))),
            (
                "search(%s, %s, %s, %s)",
                (s.text(), s.sent(where), s.one([1, 100, 0, -1, 2**31 - 1]), s.one([None, run])),
            ),
            (
                "search(%s, %s, %s, %s, %s, %s, %s)",
                (s.text()[:200], s.sent(where), 10, None, *(s.one([1, 0, -1, 2**31 - 1]) for _ in range(3))),
            ),
            ("steps(%s, %s)", (run, None)),
            (
                "trail(%s, %s, %s)",
                (s.sent(s.record(run=self._id, types=lambda: [s.text()])), s.whole(), s.one([1, 100, -1])),
            ),
            (
                "follow(%s, %s, %s, %s, %s)",
                (
                    [run, run],
                    [s.whole(), s.one([0, None, -1, 2**63 - 1])],
                    None,
                    s.one([1, 0, -1]),
                    s.one([1, -1]),
                ),
            ),
            (
                "follow_all(%s, %s, %s)",
                (s.sent(s.record(types=lambda: [s.text()])), s.whole(), s.one([1, 100, -1])),
            ),
            ("approvals(%s, %s, %s, %s)", (None, s.one([1, 100, -1]), run, s.text())),
            ("waiting_on(%s, %s)", (s.text(), None)),
            ("held_back(%s, %s)", (run, s.text())),
            ("stuck(%s)", (s.one([1, 100, 0, -1]),)),
            ("counts(%s)", (s.text(),)),
            ("scale(%s, %s)", (s.text(), s.one([1, 100, 0, -1, 2**31 - 1]))),
            (
                "rates(%s, %s, %s, %s)",
                (s.text(), s.one([0, -1, 2**63 - 1, None]), s.one([None, 0, -(2**63)]), s.one([1, 0, -1])),
            ),
            ("fold_counts(%s)", (s.one([1, 5000, 0, -1, 2**31 - 1]),)),
            ("recount(%s)", (s.one([True, False, None]),)),
        ]
        return self._call("readers", *_spread(s.one(calls)))

    def _operators(self) -> Statement:
        s = self.values
        name = s.one(["hostile.nobody", "hostile.echo.v1", "hostile." + s.text()])
        given = s.sent(
            s.record(
                runtime=lambda: s.one(["python", s.text()]),
                is_enabled=lambda: s.chance(0.8),
                description=s.text,
                intent_type=s.text,
            )
        )
        limit = s.sent(s.record(concurrency=s.number, rate=s.number, period=s.number, weight=s.number))
        plan = s.record(
            name=lambda: "hostile.nobody.v1",
            type=lambda: "hostile.nobody.v1",
            kind=lambda: s.one(["code", "x"]),
            description=s.text,
            steps=s.json,
            max_attempts=s.number,
        )
        calls: list[tuple[str, tuple[Any, ...]]] = [
            ("register(%s, %s)", (name, given)),
            ("limit(%s, %s, %s)", (s.one(["type", "key", "x"]), name, limit)),
            ("unregister(%s)", (name,)),
            ("unlimit(%s, %s)", (s.one(["type", "key"]), name)),
            ("pause_key(%s, %s, %s)", (name, s.one([None, s.whole()]), s.one([None, 0.1, -1.0, 1e300]))),
            ("publish(%s)", (s.sent([plan]),)),
            (
                "present(%s)",
                (
                    s.sent(
                        s.record(
                            worker=s.text,
                            types=lambda: [s.text()],
                            runtime=s.text,
                            slots=s.number,
                            patterns=lambda: [s.text()],
                        )
                    ),
                ),
            ),
            ("absent(%s)", (s.text(),)),
            ("lease_states(%s)", (s.sent([s.record(run=self._id, fence=s.number)]),)),
            (
                "show_running(%s, %s)",
                (
                    s.text(),
                    s.sent([s.record(run=self._id, fence=s.number, started_at=s.number, steps=s.json)]),
                ),
            ),
        ]
        return self._call("operators", *_spread(s.one(calls)))

    def _keys(self) -> Statement:
        """Calls of the verbs of API keys: by the app's role, and refused to all others."""
        s = self.values
        hash_ = s.one(["0" * 64, s.text()])
        new = s.record(
            id=lambda: s.one([KEY_ID, s.text()]), tenant=s.name, name=s.name, secret_hash=lambda: hash_,
            scopes=lambda: s.one([["work"], [s.text()], [], None]), patterns=lambda: [s.text()],
            expires_at=s.number, rate=s.number, open_runs_max=s.number, by=s.text,
        )  # fmt: skip
        act = s.record(
            tenant=s.text, key_id=s.text, key_name=s.text, action=s.text, target=s.text,
            outcome=lambda: s.one(["done", "refused", s.text()]), code=s.text, request=s.text,
        )  # fmt: skip
        where = s.record(tenant=s.text, after=s.whole, actions=lambda: [s.text()], since=s.whole)
        session = s.record(
            id_hash=lambda: hash_, key_id=lambda: KEY_ID, secret_hash=s.text, idle_seconds=s.whole
        )
        audit, tenant = s.one([None, s.sent(act)]), s.one([None, "default"])
        calls: list[tuple[str, tuple[Any, ...]]] = [
            ("create_key(%s, %s)", (s.sent(new), audit)),
            (
                "rotate_key(%s, %s, %s, %s, %s)",
                (KEY_ID, tenant, hash_, s.one([0, -1.0, 1e300]), audit),
            ),
            ("revoke_key(%s, %s, %s, %s)", (s.one([KEY_ID, s.text()]), tenant, s.text(), audit)),
            ("use_keys(%s)", (s.sent([KEY_ID, s.text()]),)),
            ("note_audit(%s)", (s.sent([act]),)),
            ("audit(%s, %s)", (s.sent(where), s.one([1, 100, 0, -1]))),
            ("keys(%s, %s, %s)", (tenant, s.one([1, 0, -1]), s.text())),
            ("find_key(%s)", (s.text(),)),
            ("use_session(%s)", (s.text(),)),
            ("end_session(%s)", (s.text(),)),
            ("create_session(%s)", (s.sent(session),)),
            ("signing_keys(%s)", (s.text(),)),
            ("add_signing_key(%s)", (s.text(),)),
        ]
        return self._call("keys", *_spread(s.one(calls)))

    def _keepers(self) -> Statement:
        s = self.values
        most = s.one([0, 1, 500, -1, None])
        calls: list[tuple[str, tuple[Any, ...]]] = [
            ("expire(%s)", (most,)),
            ("time_out(%s)", (most,)),
            ("lapse(%s, %s, %s)", (s.one([None, "[]", "{}", s.json()]), True, most)),
            ("deliver(%s, %s)", (s.one([None, "[]", "{}", s.json()]), most)),
        ]
        return self._call("keepers", *_spread(s.one(calls)))


class Statements(Plain, Functions):
    """A stream of hostile statements: the same seed makes the same stream."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._weights, self._makers = zip(*self._plain, *self._functions, strict=True)

    def next(self) -> Statement:
        (maker,) = self.values.dice.choices(self._makers, self._weights)
        made: Statement = maker()
        return made


def _spread(call: tuple[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    return (call[0], *call[1])
