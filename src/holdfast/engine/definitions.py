"""Definitions of workflows: a versioned name, a function and a policy; and the matching of names."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic

from holdfast.arguments import (
    Seconds,
    check_budget,
    check_duration,
    check_startable,
    check_type,
    check_whole,
    exact_text,
    is_type,
)
from holdfast.backoff import DEFAULT, Backoff, check_policy
from holdfast.bounds import RUN_BYTES
from holdfast.clipped import clipped
from holdfast.codec import Codec, annotated, untyped
from holdfast.errors import UnknownWorkflow, UsageError
from holdfast.records import Definition, Json

from .failures import text
from .schemas import NOTHING, schema_of
from .signatures import check_annotation, check_workflow, is_async
from .step_failures import Raises, check_raises
from .typed import P_contra, R_co

STEPS_MAX = 10_000
RESERVED = "holdfast."  # types and tenants of the engine itself begin with it
_ODD_VERSION = re.compile(r"(.+)\.[vV]?([1-9][0-9]{0,8})")  # such as shop.order.1 or shop.order.V1
REFRESH_SECONDS = 1.0  # in a segment: the greatest age of the run's state at a boundary


def version(type_: str) -> int:
    """Return the N of domain.action.vN."""
    return int(type_.rsplit(".v", 1)[1])


def bare(name: str) -> str:
    """Return a type without its version; any other name unchanged."""
    return name.rpartition(".v")[0] if has_version(name) else name


def newest(name: str, known: Iterable[str]) -> str:
    """Return the type of a name with or without version; the newest version by number, not by text."""
    name = exact_text(name)
    if is_type(name):
        return name
    check_startable(name)
    known = list(known)
    versions = [type_ for type_ in known if type_.rsplit(".v", 1)[0] == name]
    if versions:
        return max(versions, key=version)
    near = difflib.get_close_matches(name, {type_.rsplit(".v", 1)[0] for type_ in known}, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}? If not" if near else ""
    odd = _ODD_VERSION.fullmatch(name)
    full = f"{odd[1]}.v{odd[2]}" if odd else f"{name}.v1"
    raise UnknownWorkflow(
        f"no worker has published {name!r} here{hint}: start one (`holdfast dev MODULE:APP`), "
        f"or give the full type: {full}"
    )


def check_reserved(defined: Defined | None, type_: str) -> None:
    """Refuse a type with the name of the engine, unless it is one of the engine's own workflows."""
    if type_.startswith(RESERVED) and not (defined is not None and defined.built_in):
        raise UsageError(
            f"workflow {type_}: names that begin with {RESERVED!r} belong to the engine: use another name; "
            "app.bulk starts bulk operations"
        )


def has_version(name: str) -> bool:
    """Return True for a name that ends with a version."""
    _, dot, number = name.rpartition(".v")
    return bool(dot) and number.isascii() and number.isdigit()


def matches(type_: str, patterns: Sequence[str]) -> bool:
    """Return True when one of the patterns matches the type. `%` counts only at the end; all else is
    literal.
    """
    return any(type_.startswith(one[:-1]) if one.endswith("%") else type_ == one for one in patterns)


class Defined(Generic[P_contra, R_co]):
    """The common part of code workflows and plans: a versioned name, a policy, defaults, and codecs.

    P: the type of its params. R: the type of its result.
    """

    takes_params: bool
    built_in = False  # True: a workflow of the engine itself, which has a reserved name

    def __init__(
        self,
        type_: str,
        retry: Backoff | None,
        timeout: Seconds | None,
        budget: float | None = None,
        *,
        budget_covers_children: bool = False,
    ) -> None:
        self.type = check_type(type_)
        self.retry = check_policy(f"workflow {type_}", retry) or DEFAULT
        self.timeout_seconds = (
            None if timeout is None else check_duration(f"workflow {type_}: timeout", timeout)
        )
        self.budget = None if budget is None else check_budget(f"workflow {type_}: budget", budget)
        self.budget_covers_children = bool(budget_covers_children)
        self.params = self.result = untyped

    def result_of(self, cursor: str | None) -> Codec:
        """Return the codec for the result of a run that has ended at this step."""
        return self.result

    def definition(self) -> Definition:
        """Return the published definition."""
        raise NotImplementedError


class Workflow(Defined[P_contra, R_co]):
    """A code workflow, made by `@app.workflow` from a function. Calling it calls the function.

    Type checkers know it as `Workflow[P, R]`: P is the type of its params, R that of its result.
    """

    def __init__(
        self,
        type_: str,
        function: Callable[..., Any],
        retry: Backoff | None,
        timeout: Seconds | None,
        steps_max: int,
        checkpoint: str = "step",
        refresh: Seconds = REFRESH_SECONDS,
        budget: float | None = None,
        bytes_max: int = RUN_BYTES,
        raises: Raises = (),
        *,
        budget_covers_children: bool = False,
    ) -> None:
        super().__init__(type_, retry, timeout, budget, budget_covers_children=budget_covers_children)
        self.raises = check_raises(f"workflow {type_}", raises)
        self.function = function
        self.steps_max = check_whole(f"workflow {type_}: steps_max", steps_max, 1)
        self.bytes_max = check_whole(f"workflow {type_}: bytes_max", bytes_max, 1)
        if checkpoint not in ("step", "segment"):
            raise UsageError(f"workflow {type_}: checkpoint={clipped(checkpoint)}: give 'step' or 'segment'")
        self.segment = checkpoint == "segment"
        self.refresh_seconds = check_duration(f"workflow {type_}: refresh", refresh)
        hints = annotated(function)
        self.takes_params = check_workflow(type_, function, hints)
        self.is_sync = not is_async(function)
        self.params = _codec(type_, function, hints) if self.takes_params else untyped
        wanted = hints.get("return", Any)
        check_annotation(f"workflow {type_}: its result", wanted, result=True)
        self.result = Codec(type(None) if wanted is None else wanted)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", type_)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, for example in a test."""
        return self.function(*args, **kwargs)

    def definition(self) -> Definition:
        """Return the published definition."""
        return Definition(
            type=self.type,
            max_attempts=self.retry.attempts,
            timeout_seconds=self.timeout_seconds,
            budget=self.budget,
            covers_children=self.budget_covers_children,
            description=text((inspect.getdoc(self.function) or "").partition("\n")[0]),
            params_schema=schema_of(self.params.wanted) if self.takes_params else NOTHING,
            result_schema=schema_of(self.result.wanted),
        )


class Defaulted(Codec):
    """A codec for a value with a default. None stands for the default, when encoding and when decoding."""

    __slots__ = ("_default",)

    def __init__(self, wanted: Any, default: Any, what: str) -> None:
        super().__init__(wanted)
        self._default = super().encode(default, what)

    def encode(self, value: Any, what: str) -> Json:
        """Return the JSON text of the value, or of the default."""
        return self._default if value is None else super().encode(value, what)

    def decode(self, text: Json | bytes, what: str) -> Any:
        """Return the value. It is decoded anew each time, because code may change it."""
        return super().decode(self._default if text in {"null", b"null"} else text, what)


def _codec(type_: str, function: Callable[..., Any], hints: dict[str, Any]) -> Codec:
    value = list(inspect.signature(function).parameters.values())[1]
    wanted = hints.get(value.name, Any)
    check_annotation(f"workflow {type_}: its value {value.name!r}", wanted)
    if value.default is value.empty or value.default is None:
        return Codec(wanted)
    return Defaulted(wanted, value.default, f"workflow {type_}: the default of {value.name!r}")
