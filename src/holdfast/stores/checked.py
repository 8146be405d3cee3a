"""`@checked`: a class decorator that checks the arguments of every verb of a store before the verb runs.

So all stores refuse the same arguments with the same messages, before anything changes. A bad run in `start`
gets an error as its answer, and the other runs are started. A progress that is not JSON is left out of the
renewal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import chain
from typing import Any, TypeVar

from holdfast.arguments import check_bare, check_instant, check_name, check_priority, check_text, check_whole
from holdfast.contract import FOLLOWED_MAX, OUTLINES_MAX, Store
from holdfast.errors import HoldfastError, UsageError
from holdfast.exact import check_argument
from holdfast.records import Lease, NewRun, Renewal, Started
from holdfast.searching import check_searched
from holdfast.step_keys import check_key

from . import arguments, items, key_arguments, page_sessions, transfer_arguments

S = TypeVar("S", bound=type)
Check = Callable[[str, Any], object]


def _chunk(what: str, limit: Any) -> None:
    """Check the number of rows in one commit of a chore, or one part of a search: with 0 it would never
    end."""
    check_whole(what, limit, 1)


def _between(what: str, span: tuple[Any, Any]) -> None:
    for at in span:
        arguments.check_at(what, at)


def _followed(what: str, runs: Sequence[Any]) -> None:
    if len(runs) > FOLLOWED_MAX:
        raise UsageError(f"{what}: at most {FOLLOWED_MAX:,} in one call, not {len(runs):,}")
    arguments.check_pairs(what, runs)


def _outlined(what: str, limit: Any) -> None:
    arguments.check_rows(what, limit)
    if limit > OUTLINES_MAX:
        raise UsageError(f"{what}: at most {OUTLINES_MAX:,} in one call, not {limit:,}")


def _name(_: str, name: Any) -> None:
    check_bare(name)


def _step(_: str, step: Any) -> None:
    check_key(step)


# Checks by the name of the argument. An optional argument that is None is not checked.
CHECKS: Mapping[str, Check] = {
    "answers": arguments.check_relayed,
    "ask": arguments.check_ask,
    "audit": key_arguments.check_entry,
    "batch": items.check_batch,
    "between": _between,
    "budget": arguments.check_budget,
    "by": check_text,
    "comment": check_text,
    "concurrency": check_whole,
    "definitions": arguments.check_definitions,
    "delay_seconds": arguments.check_span,
    "deleted_seconds": arguments.check_span,
    "description": check_text,
    "digest": check_text,
    "event": arguments.check_event,
    "entries": key_arguments.check_entries,
    "firing": arguments.check_firing,
    "fresh": key_arguments.check_signing_key,
    "id_hash": check_text,
    "intent_type": check_name,
    "item": items.check_item,
    "key": check_name,
    "largest": check_whole,
    "lease_seconds": arguments.check_span,
    "leases": arguments.check_leases,
    "limit": arguments.check_rows,
    "limit_seconds": arguments.check_span,
    "max_attempts": lambda what, value: check_whole(what, value, 1),
    "most": lambda what, value: check_whole(what, value, 1),
    "new": arguments.check_schedule,
    "next_at": arguments.check_at,
    "overlap_seconds": arguments.check_span,
    "presence": arguments.check_presence,
    "priority": lambda _, priority: check_priority(priority),
    "rate": arguments.check_rate,
    "rev": arguments.check_big,
    "runtime": check_name,
    "scope": arguments.check_scope,
    "secret_hash": key_arguments.check_secret_hash,
    "tenant": arguments.check_tenant_or_any,
    "ttl_seconds": arguments.check_span,
    "unchanged_since": arguments.check_at,
    "until": arguments.check_at,
    "where": arguments.check_where,
    "webhook": arguments.check_webhook,
    "weight": arguments.check_weight,
    "worker": arguments.check_worker,
}
# Checks by verb and argument, where the name alone is ambiguous.
OF_VERBS: Mapping[tuple[str, str], Check] = {
    ("append_step", "name"): _step,
    ("audit", "actions"): key_arguments.check_texts,
    ("audit", "after"): arguments.check_big,
    ("audit", "keys"): key_arguments.check_texts,
    ("create_key", "new"): key_arguments.check_new_key,
    ("create_session", "new"): page_sessions.check_new_session,
    ("deliver", "limit"): _chunk,
    ("export_events", "after"): arguments.check_big,
    ("export_runs", "bytes"): arguments.check_bytes,
    ("export_runs", "place"): transfer_arguments.check_place,
    ("export_runs", "runs"): transfer_arguments.check_runs,
    ("leave", "runs"): transfer_arguments.check_runs,
    ("leave", "to"): check_text,
    ("left", "departures"): transfer_arguments.check_departures,
    ("left", "copies"): transfer_arguments.check_copies,
    ("went_on", "departures"): transfer_arguments.check_departures,
    ("come_back", "departures"): transfer_arguments.check_departures,
    ("arrive", "departures"): transfer_arguments.check_departures,
    ("arrive", "copies"): transfer_arguments.check_copies,
    ("drop_arrived", "departures"): transfer_arguments.check_departures,
    ("drop_arrived", "copies"): transfer_arguments.check_copies,
    ("import_events", "events"): transfer_arguments.check_events,
    ("import_runs", "parts"): transfer_arguments.check_parts,
    ("limit", "name"): check_name,
    ("find_key", "id"): check_text,
    ("follow", "bytes"): arguments.check_bytes,
    ("follow", "runs"): _followed,
    ("follow_all", "after"): arguments.check_big,
    ("follow_all", "bytes"): arguments.check_bytes,
    ("load", "after"): arguments.check_after,
    ("load", "bytes"): arguments.check_bytes,
    ("load", "lease"): arguments.check_lease,
    ("outbox", "after"): arguments.check_big,
    ("outlines", "limit"): _outlined,
    ("purge", "limit"): _chunk,
    ("rates", "since"): check_instant,
    ("lease_states", "leases"): arguments.check_pairs,
    ("register", "name"): _name,
    ("revoke_key", "id"): key_arguments.check_key_id,
    ("rotate_key", "id"): key_arguments.check_key_id,
    ("show_running", "rows"): items.check_running,
    ("relay", "ask"): arguments.check_relay_ask,
    ("search", "limit"): _chunk,
    ("search", "text"): lambda _, text: check_searched(text),
    ("tick", "limit"): _chunk,
    ("steps", "after"): arguments.check_after,
    ("steps", "before"): arguments.check_after,
    ("steps", "bytes"): arguments.check_bytes,
    ("trail", "after"): arguments.check_big,
    ("use_keys", "ids"): key_arguments.check_key_ids,
}


def checked(store: S) -> S:
    """Return the store class with verbs that refuse bad arguments."""
    for name, verb in inspect.getmembers(Store, inspect.isfunction):
        parameters = list(inspect.signature(verb).parameters.values())[1:]
        checks = [
            (one.name, check, one.default is None)
            for one in parameters
            if (check := OF_VERBS.get((name, one.name)) or CHECKS.get(one.name)) is not None
        ]
        if checks or any("str" in str(one.annotation) for one in parameters):
            setattr(
                store, name, _guarded(getattr(store, name), _look([one.name for one in parameters], checks))
            )
    store.start = _starting(store.start)  # type: ignore[attr-defined]  # every store has this verb
    store.renew = _renewing(store.renew)  # type: ignore[attr-defined]
    return store


def _look(names: list[str], checks: list[tuple[str, Check, bool]]) -> Callable[..., None]:
    """Return a function that checks the arguments of one call. Arguments that are left out need no check."""
    places = [(names.index(name), name, check, optional) for name, check, optional in checks]

    def look(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        given = len(args)
        for name, value in chain(zip(names, args, strict=False), kwargs.items()):
            check_argument(name, value)
        for place, name, check, optional in places:
            if place < given:
                value = args[place]
            elif name in kwargs:
                value = kwargs[name]
            else:
                continue
            if value is not None or not optional:
                check(name, value)

    return look


def _guarded(verb: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(verb):

        @wraps(verb)
        async def awaited(self: Any, *args: Any, **kwargs: Any) -> Any:
            look(args, kwargs)
            return await verb(self, *args, **kwargs)

        return awaited

    @wraps(verb)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        look(args, kwargs)
        return verb(self, *args, **kwargs)

    return called


def _starting(verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    async def start(
        self: Any, runs: Sequence[NewRun], connection: Any = None
    ) -> list[Started | HoldfastError]:
        wrong = [_wrong(run) for run in runs]
        good = [run for run, error in zip(runs, wrong, strict=True) if error is None]
        if len(good) == len(wrong):
            return await verb(self, runs, connection)  # type: ignore[no-any-return]  # as the contract has it
        answers = iter(await verb(self, good, connection) if good else ())
        return [next(answers) if error is None else error for error in wrong]

    return start


def _renewing(verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    def renew(self: Any, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        return verb(self, worker, [*map(arguments.readable, leases)], lease_seconds)  # type: ignore[no-any-return]

    return renew


def _wrong(run: NewRun) -> UsageError | None:
    try:
        arguments.check_run(run)
        items.refuse_follower(run)
    except UsageError as error:
        return error
    return None
