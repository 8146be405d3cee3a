"""The contract suite over sealed stores: a sealed store behaves like the store behind it."""

from __future__ import annotations

import inspect

import pytest

from holdfast.contract import Store
from holdfast.sealing import Compress, Encrypt, Sealed
from holdfast.testing import contract
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


class TestSealedMemory(Words, contract(sealed(memory))):
    pass


class TestSealedSqlite(Words, contract(sealed(sqlite_inline))):
    pass


@pytest.mark.parametrize("verb", sorted(name for name in dir(Store) if not name.startswith("_")))
def test_every_verb_of_the_contract_passes_through(verb):
    """A verb that the contract gains is not forgotten here, and takes the same."""
    assert any(verb in vars(one) for one in Sealed.__mro__)
    wanted = inspect.signature(getattr(Store, verb)).parameters
    assert list(inspect.signature(getattr(Sealed, verb)).parameters.values()) == list(wanted.values())
