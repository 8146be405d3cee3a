"""The pytest plugin: fixtures for rehearsals and explorations. It imports Holdfast only when a test uses
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .findings import Report
    from .rehearsal import Rehearsal


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `spec`, by which tests of the contract suite name lines of the specification."""
    config.addinivalue_line(
        "markers", "spec(*ids): the lines of Holdfast's specification that the test shows"
    )


@pytest.fixture
def rehearsal() -> Iterator[Callable[..., Rehearsal]]:
    """Return a function that makes a `holdfast.testing.Rehearsal`, which ends with the test."""
    from .rehearsal import Rehearsal

    with ExitStack() as stack:
        yield lambda *what, **options: stack.enter_context(Rehearsal(*what, **options))


@pytest.fixture
def explore() -> Callable[..., Report]:
    """Return `holdfast.testing.explore`: `explore(workflow, params, …)` crashes at every store call in
    turn.
    """
    from .exploring import explore as explored

    return explored
