"""The pytest plugin: fixtures for rehearsals and explorations. Nothing of Holdfast is imported before use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .findings import Report
    from .rehearsal import Rehearsal


def pytest_configure(config: pytest.Config) -> None:
    """The contract suite says which lines of the specification each of its tests shows."""
    config.addinivalue_line("markers", "spec(*ids): the lines of Holdfast's specification that it shows")


@pytest.fixture
def rehearsal() -> Iterator[Callable[..., Rehearsal]]:
    """Makes a `holdfast.testing.Rehearsal` of an app, which ends with the test."""
    from .rehearsal import Rehearsal

    with ExitStack() as stages:
        yield lambda *what, **options: stages.enter_context(Rehearsal(*what, **options))


@pytest.fixture
def explore() -> Callable[..., Report]:
    """`explore(workflow, params, …)`: a crash at every store call in turn, as `holdfast.testing.explore`."""
    from .exploring import explore as explored

    return explored
