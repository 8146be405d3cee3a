"""What differs from store to store."""

from __future__ import annotations

import msgspec


class Traits(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Facts about a store that the engine adapts to. The defaults are those of an embedded store."""

    writers: int = 1  # how many commits of one worker can be on their way at once
    poll_seconds: float = 1.0  # how long an idle worker sleeps at most when no hint comes
    awaits_work: bool = (
        False  # functions of its transactions may be awaited, and keep nobody else from writing
    )
