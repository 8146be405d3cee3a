"""The table of all verbs, for classes that stand in front of a store or reach one from afar.

A class that derives from `Forwards` has every verb of the contract, with the signature and the types of the
contract. It writes the verbs that need code of their own. All others call its `_forward`, which finds in
`VERBS` the arguments and the answer of a verb. A new verb of the contract is one more row here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from . import Store

P = ParamSpec("P")
T = TypeVar("T")


class Verb:
    """One verb: the types of its arguments, by name and in order, and the type of its answer."""

    def __init__(self, method: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(method).parameters.values())[1:]
        types = get_type_hints(method, include_extras=True)
        self.name, self.answer = method.__name__, types.pop("return")
        self.takes: Mapping[str, Any] = {one.name: types[one.name] for one in parameters}
        self._signature = inspect.Signature(parameters)

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments of a call by name, in the order of the contract; TypeError as for every
        function.
        """
        given = self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        return given.arguments


def forwarded(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make the verb of the same name that goes through `_forward`."""
    name = method.__name__
    if not inspect.iscoroutinefunction(method):

        @wraps(method)
        def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self._forward_blocking(name, args, kwargs)  # type: ignore[no-any-return]

        return called

    @wraps(method)
    async def awaited(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await self._forward(name, args, kwargs)

    return awaited  # type: ignore[return-value]  # T is what an async method answers: its coroutine


class Forwards:
    """Every verb of the contract, each forwarded."""

    async def _forward(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the answer of a verb that the class does not write itself."""
        raise NotImplementedError(verb)

    def _forward_blocking(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The same for a verb that is not awaited."""
        raise NotImplementedError(verb)

    open = forwarded(Store.open)
    close = forwarded(Store.close)
    # starting
    start = forwarded(Store.start)
    publish = forwarded(Store.publish)
    # holding
    claim = forwarded(Store.claim)
    load = forwarded(Store.load)
    commit = forwarded(Store.commit)
    transact = forwarded(Store.transact)
    renew = forwarded(Store.renew)
    lease_states = forwarded(Store.lease_states)
    show_running = forwarded(Store.show_running)
    # people
    cancel = forwarded(Store.cancel)
    pause = forwarded(Store.pause)
    resume = forwarded(Store.resume)
    rewind = forwarded(Store.rewind)
    retry_run = forwarded(Store.retry_run)
    set_priority = forwarded(Store.set_priority)
    append_step = forwarded(Store.append_step)
    delete = forwarded(Store.delete)
    restore = forwarded(Store.restore)
    # approvals
    approvals = forwarded(Store.approvals)
    decide = forwarded(Store.decide)
    # events
    emit = forwarded(Store.emit)
    deliver = forwarded(Store.deliver)
    # chores
    tick = forwarded(Store.tick)
    purge = forwarded(Store.purge)
    # workers
    present = forwarded(Store.present)
    absent = forwarded(Store.absent)
    listen = forwarded(Store.listen)
    hears = forwarded(Store.hears)
    # catalog
    now = forwarded(Store.now)
    get = forwarded(Store.get)
    list = forwarded(Store.list)
    outlines = forwarded(Store.outlines)
    search = forwarded(Store.search)
    children = forwarded(Store.children)
    steps = forwarded(Store.steps)
    trail = forwarded(Store.trail)
    follow = forwarded(Store.follow)
    follow_all = forwarded(Store.follow_all)
    waiting_on = forwarded(Store.waiting_on)
    definitions = forwarded(Store.definitions)
    due = forwarded(Store.due)
    stats = forwarded(Store.stats)
    stuck = forwarded(Store.stuck)
    checkup = forwarded(Store.checkup)
    # counts
    counts = forwarded(Store.counts)
    rates = forwarded(Store.rates)
    scale = forwarded(Store.scale)
    recount = forwarded(Store.recount)
    # outbox
    relay = forwarded(Store.relay)
    relayed = forwarded(Store.relayed)
    relay_at = forwarded(Store.relay_at)
    outbox = forwarded(Store.outbox)
    resend = forwarded(Store.resend)
    backlog = forwarded(Store.backlog)
    webhooks = forwarded(Store.webhooks)
    put_webhook = forwarded(Store.put_webhook)
    remove_webhook = forwarded(Store.remove_webhook)
    # schedules
    schedules = forwarded(Store.schedules)
    schedule = forwarded(Store.schedule)
    unschedule = forwarded(Store.unschedule)
    pause_schedule = forwarded(Store.pause_schedule)
    resume_schedule = forwarded(Store.resume_schedule)
    due_schedules = forwarded(Store.due_schedules)
    fire_schedule = forwarded(Store.fire_schedule)
    # registry and limits
    registry = forwarded(Store.registry)
    register = forwarded(Store.register)
    unregister = forwarded(Store.unregister)
    limits = forwarded(Store.limits)
    limit = forwarded(Store.limit)
    unlimit = forwarded(Store.unlimit)
    pause_key = forwarded(Store.pause_key)
    resume_key = forwarded(Store.resume_key)
    held_back = forwarded(Store.held_back)
    # keys
    create_key = forwarded(Store.create_key)
    keys = forwarded(Store.keys)
    find_key = forwarded(Store.find_key)
    rotate_key = forwarded(Store.rotate_key)
    revoke_key = forwarded(Store.revoke_key)
    use_keys = forwarded(Store.use_keys)
    signing_keys = forwarded(Store.signing_keys)
    add_signing_key = forwarded(Store.add_signing_key)
    note_audit = forwarded(Store.note_audit)
    audit = forwarded(Store.audit)
    # page sessions
    create_session = forwarded(Store.create_session)
    use_session = forwarded(Store.use_session)
    end_session = forwarded(Store.end_session)
    # transfer
    run_ids = forwarded(Store.run_ids)
    export_runs = forwarded(Store.export_runs)
    export_events = forwarded(Store.export_events)
    import_events = forwarded(Store.import_events)
    import_runs = forwarded(Store.import_runs)
    leave = forwarded(Store.leave)
    left = forwarded(Store.left)
    went_on = forwarded(Store.went_on)
    come_back = forwarded(Store.come_back)
    arrive = forwarded(Store.arrive)
    drop_arrived = forwarded(Store.drop_arrived)


VERBS: Mapping[str, Verb] = {
    name: Verb(method)
    for name, method in inspect.getmembers(Store, inspect.isfunction)
    if not name.startswith("_")
}


def left_to_forward(kind: type[Forwards]) -> dict[str, Verb]:
    """Return the verbs that a class does not write itself."""
    return {name: verb for name, verb in VERBS.items() if getattr(kind, name) is vars(Forwards)[name]}
