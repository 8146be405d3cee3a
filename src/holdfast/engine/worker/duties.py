"""The duties of a worker beside the execution of runs: chores, messages, bulk operations.

A worker behind a server has none of them: the server does them. It can be refused: its API key is revoked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from holdfast.contract import Store
from holdfast.engine.bulk.workflow import built_in
from holdfast.engine.outbox.relay import Relay
from holdfast.engine.outbox.sinks import Sinks
from holdfast.errors import NotAllowed
from holdfast.escaping import safe_logger

if TYPE_CHECKING:
    from .looking import Shared
    from .worker import Worker

log = safe_logger("holdfast.worker")


class Duties(NamedTuple):
    """The duties of one worker. sinks: functions that it relays messages to. built_in: types of the engine
    itself that it executes.
    """

    keeps: bool
    webhooks: bool
    sinks: Sinks
    built_in: tuple[str, ...]

    def relay(self, worker: Worker, shared: Shared) -> Relay:
        """Return the relay of the worker."""
        return Relay(
            worker.store,
            worker.world,
            worker.id,
            self.sinks,
            tenants=worker.tenants,
            webhooks=self.webhooks,
            **shared,
        )


def duties_of(store: Store, runtime: str, sinks: Sinks | None, *, keeper: bool, relay: bool) -> Duties:
    """Return the duties of a worker with these options."""
    # Only this process can call its functions; any keeper can post to a webhook.
    functions = dict(sinks or {}) if relay else {}
    if store.traits.served:
        if functions:
            log.warning(
                "this worker has no access to the store, and delivers no messages to %s: a worker at the "
                "store itself does",
                ", ".join(functions),
            )
        return Duties(keeps=False, webhooks=False, sinks={}, built_in=())
    return Duties(keeper, relay and keeper, functions, (*built_in(runtime),))


class Refusal:
    """The refusal of a worker's API key. `event` is set with it."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.error: NotAllowed | None = None

    def note(self, worker: Worker, error: NotAllowed) -> None:
        """Stop the worker: no retry helps."""
        log.error("worker %s stops: %s", worker.id, error)
        worker.drain()
        self.error = error
        self.event.set()
