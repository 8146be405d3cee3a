"""Verbs that are one call of the function of the same name. The types of the contract describe the call.

Arguments are sent in the order of the contract: a tenant by its name or null, records as JSON. A JSON answer
is decoded to the type in the contract. Verbs that need more are written in the other files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

import msgspec

from holdfast.contract import SLICE
from holdfast.contract.forwarding import VERBS, Forwards, Verb
from holdfast.errors import Conflict
from holdfast.records import Decided, Tenant, tenant_name

from .calls import Calls, json_text

_AS_THEY_ARE = {str, int, float, bool, UUID, NoneType}
PROMISING = {
    "cancel",
    "resume",
    "rewind",
    "retry_run",
    "decide",
}  # debts of their run are carried out right after
OF_CHAINS = {"delete", "restore"}  # debts of a chain's first run are carried out right after
# Functions that take their arguments in another order than the verb.
ORDERS = {"append_step": ("run", "name", "max_attempts", "tenant")}


class _Changed(msgspec.Struct):
    """The fields of an answer beside its record.

    owes: others must be told or cancelled. chain_owes: the other runs of the chain must become like the first
    one.
    conflict: why a decision is refused, although a gate whose time was over is settled.
    """

    owes: bool = False
    chain_owes: bool = False
    conflict: str | None = None
    decided: msgspec.Raw = msgspec.Raw(b"null")


_CHANGED = msgspec.json.Decoder(_Changed)


class Call:
    """The call of one verb."""

    def __init__(self, verb: Verb) -> None:
        self._verb, self.answer = verb, verb.answer
        self._encoders = {name: _encoder(verb.takes[name]) for name in ORDERS.get(verb.name, verb.takes)}
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(verb.answer)

    def encoded(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of the function."""
        given = self._verb.bound(args, kwargs)
        return [encode(given[name]) for name, encode in self._encoders.items()]

    def decoded(self, answer: Any) -> Any:
        """Return the answer of the verb. Values that the driver decodes itself are not text."""
        if self.answer is NoneType:
            return None
        return self._decoder.decode(answer) if isinstance(answer, str | msgspec.Raw) else answer


def _encoder(hint: Any) -> Callable[[Any], Any]:
    if hint == Tenant:
        return tenant_name
    if set(get_args(hint) if isinstance(hint, UnionType) else (hint,)) <= _AS_THEY_ARE:
        return _as_it_is
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return json_text
    raise TypeError(f"no function takes {hint}: write the verb in the Postgres store")


def _as_it_is(value: Any) -> Any:
    return value


@cache
def call_of(verb: str) -> Call:
    """Return the call of a verb; TypeError when its types do not describe one."""
    return Call(VERBS[verb])


class ForwardedVerbs(Calls, Forwards):
    """All verbs that no other class writes."""

    if TYPE_CHECKING:

        async def _carry_out(self, limit: int = SLICE) -> int: ...

    async def _forward(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        call = call_of(verb)
        answer = await self._call(verb, *call.encoded(args, kwargs))
        if verb in PROMISING:
            changed = _CHANGED.decode(answer)
            if changed.owes:
                await self._carry_out()
            if changed.conflict is not None:
                raise Conflict(changed.conflict)
            answer = changed.decided if call.answer is Decided else answer
        elif verb in OF_CHAINS and _CHANGED.decode(answer).chain_owes:
            await self._carry_out()
        return call.decoded(answer)
