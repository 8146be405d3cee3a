"""Parts of the contract suite: tests of writes of holders, plans and waits, for stores with fast paths."""

from __future__ import annotations

from holdfast.testing import contract

WRITES = {
    "test_commit",
    "test_moves",
    "test_repeat",
    "test_lease",
    "test_segments",
    "test_review",
    "test_people",
}

WAITS = {"test_waits", "test_wait_moves", "test_slices"}
PLANS = {"test_plans", "test_plan_ends", "test_plan_strays", "test_plan_timing", "test_plan_waits"}


def part(maker, name, modules):
    """Return the tests of the suite that are in these modules."""
    whole = contract(maker)
    members = {
        key: member
        for key, member in vars(whole).items()
        if not key.startswith("test_") or member.__func__.__module__.rpartition(".")[2] in modules
    }
    return type(name, whole.__bases__, members)
