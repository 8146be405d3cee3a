"""Settings of the pages: the name and the colour of the environment, shown above every page."""

from __future__ import annotations

import msgspec

from holdfast.clipped import clipped
from holdfast.errors import UsageError

COLOURS = ("grey", "blue", "green", "yellow", "orange", "red", "purple")
NAME_MAX = 40


class PageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """environment: its name, such as `production`; empty: none is shown. colour: one of COLOURS."""

    environment: str = ""
    colour: str = "grey"

    def __post_init__(self) -> None:
        if self.colour not in COLOURS:
            raise UsageError(
                f"the colour of the environment is {clipped(self.colour)}: use one of {', '.join(COLOURS)}"
            )
        if len(self.environment) > NAME_MAX:
            raise UsageError(f"the name of the environment may have {NAME_MAX} characters")
