"""The ends of a subscription. Everything before the end is a `TrailEntry`."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.lifecycle import Status


class Ended(msgspec.Struct, gc=False, frozen=True):
    """The run has a final status, and all rows of its trail were given.

    `present` is another run when this one has continued as the next run of its chain.
    """

    status: Status
    present: UUID


class Gone(msgspec.Struct, gc=False, frozen=True):
    """The run was deleted."""


class Closed(msgspec.Struct, gc=False, frozen=True):
    """This process stops. The trail may go on: ask another process, after the last row."""


End = Ended | Gone | Closed
