"""A program that has only a client of Redis, and calls the producer script."""

from __future__ import annotations

from uuid import uuid4

import pytest
import redis

from holdfast import codec
from holdfast.records import NewRun
from holdfast.stores.redis.producing import producer
from holdfast.testing.contract.driver import TYPE, StoreDriver
from tests.stores.redis.test_scripts import dump


class Producer:
    """A store, and a program that has only a client of Redis."""

    def __init__(self, store):
        self.driver = StoreDriver(store, None)
        self.store, self.numbers = store, store._names.numbers

    def __call__(self, type_=TYPE, params="null", *more):
        with self.store.client() as client:
            return client.eval(producer(), 1, self.numbers, type_, params, *more)

    def refused(self, *words, match=""):
        before = dump(self.driver)
        with pytest.raises(redis.ResponseError, match=f"^REFUSED .*{match}"):
            self(*words)
        assert dump(self.driver) == before

    def start(self, type_=TYPE, params="null", **fields):
        """Start a run by the library."""
        new = NewRun(id=uuid4(), type=type_, params=params, digest=codec.digest(type_, params), **fields)
        (answer,) = self.driver.run(self.store.start([new]))
        return answer
