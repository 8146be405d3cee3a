"""A store in front of another store: it measures how long each verb takes, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from holdfast.contract import Store
from holdfast.contract.forwarding import Forwards

from .measures import Measures, guarded

# `listen` only registers a function, and `hears` only reads a variable.
UNMEASURED = frozenset({"hears", "listen"})


class Measured(Forwards):
    """All verbs of the contract over `inner`."""

    def __init__(self, inner: Store, measures: Measures, clock: Callable[[], float]) -> None:
        self.inner, self.traits = inner, inner.traits
        self.measures, self._clock = guarded(measures), clock

    def __getattr__(self, name: str) -> Any:
        """Return what only this kind of store has."""
        if name == "inner":  # before __init__, as in a copy: there is nothing to ask
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def open(self) -> None:
        """Open the store. The time is not measured: this stands before every verb of an app, and does nothing
        after the first time.
        """
        try:
            await self.inner.open()
        except Exception as error:
            self.measures.refused("open", type(error).__name__)
            raise

    async def _forward(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        begun_at = self._clock()
        try:
            return await getattr(self.inner, verb)(*args, **kwargs)
        except Exception as error:
            self.measures.refused(verb, type(error).__name__)
            raise
        finally:
            self.measures.called(verb, self._clock() - begun_at)

    def _forward_blocking(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        begun_at = self._clock()
        try:
            return getattr(self.inner, verb)(*args, **kwargs)
        except Exception as error:
            self.measures.refused(verb, type(error).__name__)
            raise
        finally:
            if verb not in UNMEASURED:
                self.measures.called(verb, self._clock() - begun_at)


def measured(store: Store, measures: Measures, clock: Callable[[], float]) -> Store:
    """Return the store in front of which these measures stand, and no others."""
    return cast("Store", Measured(unmeasured(store), measures, clock))


def unmeasured(store: Store) -> Store:
    """Return the store behind the measures, if there are any."""
    return store.inner if isinstance(store, Measured) else store


def measures_of(store: Store) -> Measures | None:
    """Return the measures of whatever works with this store; None when nothing is measured."""
    return store.measures if isinstance(store, Measured) else None
