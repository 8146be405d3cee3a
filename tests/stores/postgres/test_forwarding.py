"""Verbs that are one call of the function of the same name: the arguments that are sent."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from holdfast.contract.forwarding import VERBS, Forwards, Verb
from holdfast.records import ANY, Presence, Run
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.verbs.forwarding import Call, call_of

RUN = UUID(int=7)


def is_forwarded(name):
    """True when the verb is forwarded; the check of its arguments wraps it."""
    method = getattr(PostgresStore, name)
    while method is not vars(Forwards)[name] and hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method is vars(Forwards)[name]


@pytest.mark.parametrize("name", [name for name in sorted(VERBS) if is_forwarded(name)])
def test_the_types_of_the_contract_say_how_it_is_called(name):
    """Each verb that the store does not write has arguments and an answer of known types."""
    assert call_of(name).answer == VERBS[name].answer


def test_arguments_go_in_the_order_of_the_contract_with_their_defaults():
    assert call_of("rewind").encoded((RUN, "a"), {"tenant": ANY}) == [RUN, "a", None, "", True, None]
    assert call_of("append_step").encoded((RUN, "a", "acme"), {}) == [RUN, "a", None, "acme"]
    presence = Presence(worker="w", types=(), slots=1)
    (sent,) = call_of("present").encoded((presence,), {})
    assert '"worker":"w"' in sent


def test_a_call_that_lacks_an_argument_is_refused():
    """With the error of any function; nothing is sent."""
    with pytest.raises(TypeError, match="tenant"):
        call_of("pause").encoded((RUN,), {})


@pytest.mark.parametrize("takes", [Sequence[str], tuple[UUID, str] | None, dict[str, int], Run | None])
def test_what_the_types_do_not_say_is_not_guessed(takes):
    async def new_verb(self, given): ...

    new_verb.__annotations__ = {"given": takes, "return": bool}
    with pytest.raises(TypeError, match="write the verb"):
        Call(Verb(new_verb))
