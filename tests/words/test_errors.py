"""Errors can be copied and pickled: they cross processes, and come back the same."""

from __future__ import annotations

import copy
import pickle
from uuid import UUID

import pytest

from holdfast import errors
from holdfast.lifecycle import Move, Status
from holdfast.records import Error

RUN = UUID(int=7)
ERROR = Error(kind="fatal", type="KeyError", message="'card'", step="charge")
GIVEN = {
    errors.UnknownRun: (RUN,),
    errors.UnknownMessage: ("m1",),
    errors.UnknownSchedule: ("nightly",),
    errors.IllegalMove: (RUN, Move.CANCEL, Status.FAILED, "retry it"),
    errors.KeyReused: ("order:7", RUN),
    errors.DuplicateRun: (RUN,),
    errors.TooManyRuns: ("k00000000001", 100),
    errors.TooManySubscribers: (100,),
    errors.LeaseLost: (RUN, 3),
    errors.RunFailed: (RUN, ERROR, "look"),
    errors.StepFailed: ("charge", "exhausted", "'card'", "KeyError"),
    errors.EventTimeout: ("paid", "order:7"),
    errors.ChildFailed: ("ship", RUN, "failed", ERROR),
    errors.RetryAfter: (30,),
    errors.UnknownKey: ("no such key", "k2"),
}
CLASSES = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
WAYS = [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]


class Declined(errors.Fatal):
    """An error of the user that defines its own arguments."""

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason

    def __reduce__(self):
        return type(self), (self.code, self.reason)


class Plain(errors.Fatal):
    def __init__(self, code):
        super().__init__(code)
        self.doubled = code * 2


def looks(error):
    return type(error), error.args, str(error), vars(error)


@pytest.mark.parametrize("way", WAYS, ids=["copy", "deepcopy", "pickle"])
def test_every_error_can_be_copied_and_pickled(way):
    for class_ in CLASSES:
        error = class_(*GIVEN.get(class_, ("it is so",)))
        assert looks(way(error)) == looks(error)
    for own in (Declined(7, "late"), Plain(3)):
        assert looks(way(own)) == looks(own)
