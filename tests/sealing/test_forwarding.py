"""Verbs that a sealed store forwards unchanged: none of them carries values by mistake."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.contract import Store
from holdfast.contract.forwarding import VERBS, Forwards, Verb, left_to_forward
from holdfast.records import (
    Ask,
    Claim,
    Decided,
    Item,
    Json,
    Limit,
    NewRun,
    OutboxMessage,
    Parcel,
    Run,
    RunFilter,
    Schedule,
    Stats,
    Step,
    Tenant,
    TrailEntry,
    Verdict,
    Webhook,
)
from holdfast.sealing import Sealed
from holdfast.sealing.store import IN_PLAIN, OPENERS, opener_of
from holdfast.sealing.values import carries_values


def verb(takes=str, answer=bool):
    async def new_verb(self, run): ...

    new_verb.__annotations__ = {"run": takes, "return": answer}
    return Verb(new_verb)


def test_the_table_has_a_row_for_every_verb_and_no_other():
    """A verb that the contract gains is not forgotten."""
    verbs = {name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))}
    assert set(VERBS) == verbs
    assert {name for name in vars(Forwards) if not name.startswith("_")} == verbs


@pytest.mark.parametrize("name", sorted(VERBS))
def test_a_row_has_the_signature_of_its_verb(name):
    """It is awaited if the verb is."""
    row, method = getattr(Forwards, name), getattr(Store, name)
    assert inspect.signature(row) == inspect.signature(method)
    assert inspect.iscoroutinefunction(row) is inspect.iscoroutinefunction(method)


@pytest.mark.parametrize(
    "hint",
    [
        Json, Json | None, Run, Step, Claim, NewRun, Item, Verdict, Decided, TrailEntry, Parcel, Webhook, Any,
        Sequence[Run], tuple[tuple[str, Json | None], ...], dict[str, OutboxMessage],
        Callable[[Schedule], int],
    ],
)  # fmt: skip
def test_json_anywhere_in_a_type_is_found(hint):
    assert carries_values(hint)


@pytest.mark.parametrize("hint", [str, int | None, Tenant, Ask, RunFilter, Stats, Limit, Sequence[Limit]])
def test_a_type_without_json_carries_no_values(hint):
    assert not carries_values(hint)


@pytest.mark.parametrize("takes", [Json, NewRun, Sequence[Item], Any])
def test_a_verb_that_takes_values_is_not_handed_on(takes):
    """The first import fails after such a verb is added."""
    with pytest.raises(TypeError, match="new_verb takes values"):
        opener_of(verb(takes=takes))


@pytest.mark.parametrize("answer", [Json | None, Step, Sequence[Run], Claim])
def test_a_verb_that_answers_values_is_not_handed_on_unopened(answer):
    with pytest.raises(TypeError, match="new_verb answers values"):
        opener_of(verb(answer=answer))


def test_a_verb_that_answers_a_run_opens_it():
    assert opener_of(verb(answer=Run)) is OPENERS[Run]
    assert opener_of(verb(answer=Stats)) is None


def test_what_is_handed_on_in_plain_is_named_with_a_reason():
    """There are no others."""
    handed = left_to_forward(Sealed)
    carrying = {
        name for name, one in handed.items()
        if one.answer not in OPENERS and any(map(carries_values, (*one.takes.values(), one.answer)))
    }  # fmt: skip
    assert carrying == set(IN_PLAIN)
    assert all(IN_PLAIN.values())
