"""Reading of steps in pages while the run goes on."""

from __future__ import annotations

import asyncio

from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Step
from holdfast.stores.paged import FIRST, StepsPage, all_steps


def step(seq, key):
    return Step(seq=seq, key=key, kind=StepKind.TASK, status=StepStatus.SUCCEEDED)


def read(*answers):
    """Return the steps that `all_steps` finds in these pages, and the seqs after which it asked for pages."""
    asked, left = [], list(answers)

    async def page(after):
        asked.append(after)
        fence, *steps, more = left.pop(0)
        return StepsPage(fence, [step(*one) for one in steps], more)

    found = asyncio.run(all_steps(page))
    assert not left
    return [(one.seq, one.key) for one in found], asked


def test_pages_follow_each_other_by_seq():
    assert read((1, (1, "a"), (2, "b"), True), (1, (5, "c"), False)) == (
        [(1, "a"), (2, "b"), (5, "c")],
        [FIRST, 2],
    )
    assert read((1, False)) == ([], [FIRST])


def test_a_step_that_was_settled_meanwhile_is_shown_once_where_it_is_now():
    assert read((1, (1, "a"), (2, "b"), True), (1, (3, "c"), (4, "a"), False))[0] == [
        (2, "b"),
        (3, "c"),
        (4, "a"),
    ]


def test_a_run_that_was_rewound_meanwhile_is_read_anew():
    before, after = (1, (1, "a"), (2, "b"), True), (2, (1, "x"), False)
    assert read(before, after, after) == ([(1, "x")], [FIRST, 2, FIRST])


def test_a_run_that_changes_hands_again_and_again_is_shown_all_the_same():
    pages = [(n, (1, "a"), True) if n % 2 == 0 else (n, (2, "b"), False) for n in range(6)]
    assert read(*pages)[0] == [(1, "a"), (2, "b")]
