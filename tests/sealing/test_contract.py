"""The contract suite over sealed stores: a sealed store behaves like the store behind it.

Sealing is the same over each store, so only the long form has another one than memory.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest

from holdfast.contract import Store
from holdfast.errors import UsageError
from holdfast.records import ANY, RunFilter
from holdfast.sealing import Compress, Encrypt, Sealed
from holdfast.stores.memory import MemoryStore
from holdfast.testing import contract
from holdfast.testing.contract import (
    test_search,
    test_transfer,
    test_transfer_going_on,
    test_transfer_handing_over,
    test_transfer_moving,
)
from holdfast.testing.contract.driver import done
from holdfast.testing.contract.test_filters import check_combined, failed, ids, mixed
from holdfast.testing.contract.transfers import memory as in_memory
from holdfast.testing.contract.transfers import runs, write
from tests.laws.effort import LONG
from tests.laws.stores import memory, sqlite_inline

KEYS = {"2026-11": bytes(range(32))}


def sealed(make):
    return lambda clock, folder: Sealed(make(clock, folder), [Compress(min_bytes=0), Encrypt(KEYS)])


class Words:
    """The one difference of a sealed store: the trail row that a store makes of an error's line."""

    @staticmethod
    def test_fail_keeps_the_error_and_its_kind(driver):
        """The error and its line come back; the trail's row says what kind it was, and no more."""
        claim = driver.held()
        driver.fail(claim, kind="fatal")
        seen = driver.get(claim.id)
        assert (seen.error.kind, seen.error.message, seen.last_error) == ("fatal", "it broke", "it broke")
        tried = {"attempt": 1, "max_attempts": 3}
        assert driver.last(claim.id, "failed") == {"kind": "fatal", "message": "fatal (sealed)", **tried}

    @staticmethod
    @pytest.mark.spec("READ-2")
    def test_lists_filter_by_the_fingerprint_of_the_error(driver):
        """Only the whole of it, and in one tenant: the store has a keyed digest. Errors of the store are not
        sealed."""
        card, ship = failed(driver), failed(driver, step="ship")
        other = failed(driver, tenant="acme")
        late = driver.start(timeout_seconds=1.0)
        driver.clock.turn(2)
        driver.tick()
        prints = {run: driver.get(run).fingerprint for run in (card, ship, late)}
        assert prints[card] == "ValueError at charge: no card"
        for run, text in prints.items():
            assert ids(driver, error=text) == [run]
        assert ids(driver, error=(prints[card], prints[ship])) == [ship, card]
        assert ids(driver, error=prints[card], tenant="acme") == [other]
        stored = {run.fingerprint for run in driver.run(driver.store.inner.list(RunFilter(tenant=ANY)))}
        assert prints[late] in stored
        assert not any("card" in text for text in stored)
        assert len(stored) == 4
        with pytest.raises(UsageError, match="cannot look for a prefix: give the whole fingerprint"):
            ids(driver, error="ValueError%")
        with pytest.raises(UsageError, match="name a tenant"):
            ids(driver, error=prints[card], tenant=ANY)

    @staticmethod
    def test_a_run_that_goes_on_has_no_fingerprint(driver):
        """A retry forgets the digest too."""
        run = failed(driver)
        text = driver.get(run).fingerprint
        driver.run(driver.store.retry_run(run, ANY))
        assert ids(driver, error=text) == []

    @staticmethod
    @pytest.mark.slow
    def test_filters_are_combined_freely_and_over_pages(driver):
        """All of them but the error, which needs a tenant."""
        check_combined(driver, [one for one in mixed(driver) if "error" not in one])

    @staticmethod
    @pytest.mark.spec("READ-2")
    def test_a_search_is_refused(driver):
        """The store has no value to look into."""
        driver.start(params='"blue"')
        with pytest.raises(UsageError, match=r"are sealed .* no text can be looked for in them: filter by"):
            driver.run(driver.store.search("blue", RunFilter()))

    @staticmethod
    @pytest.mark.spec("STORE-6")
    def test_whole_runs_are_carried_sealed(driver):
        """They go on in a store with the same keys. A run with plain values does not open there."""
        claim = driver.held(params='"blue"')
        driver.checkpoint(claim, done("paint", output='"green"'))
        (part,) = runs(driver)
        assert "blue" not in part.row.params
        assert "green" not in part.steps[0].output
        target = in_memory(driver)
        target.store = sealed(memory)(driver.clock, None)
        assert write(target, [part])[0].answer == "imported"
        target.resume(claim.id)
        again = target.take(claim.id)
        assert (again.params, again.steps[0].output) == ('"blue"', '"green"')


for name in vars(test_search):
    if name.startswith("test_") and "refused" not in name:
        setattr(Words, name, None)  # nothing that a sealed store could find
for name in (
    *vars(test_transfer),
    *vars(test_transfer_going_on),
    *vars(test_transfer_handing_over),
    *vars(test_transfer_moving),
):
    if name.startswith("test_"):
        setattr(Words, name, None)  # they carry plain values into the store


class TestSealedMemory(Words, contract(sealed(memory))):
    pass


if LONG:
    from servers.redis_store import make as redis

    class TestSealedSqlite(Words, contract(sealed(sqlite_inline))):
        pass

    class TestSealedRedis(Words, contract(sealed(redis))):
        pass


@pytest.mark.parametrize("verb", sorted(name for name in dir(Store) if not name.startswith("_")))
def test_every_verb_of_the_contract_passes_through(verb):
    """A verb that the contract gains is not forgotten here, and takes the same."""
    assert any(verb in vars(one) for one in Sealed.__mro__)
    wanted = inspect.signature(getattr(Store, verb)).parameters
    assert list(inspect.signature(getattr(Sealed, verb)).parameters.values()) == list(wanted.values())


def test_a_filter_has_as_many_errors_as_without_keys():
    """Each key makes one more text of each: those are not counted."""
    store = Sealed(MemoryStore(), [Encrypt({"a": bytes(32), "b": bytes(range(32))}, newest="b")])

    async def main():
        await store.open()
        return await store.list(RunFilter(error=tuple(f"E: {n}" for n in range(20))))

    assert asyncio.run(main()) == []
