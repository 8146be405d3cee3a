"""A server process of the experiment: `holdfast serve`, perhaps with a bug switched in."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.cli.main import main
from verify.sabotage import CARELESS


def switch_in(sabotage: str) -> None:
    """Let a wrong value be an exception that nobody expects."""
    from holdfast.http import parsing

    if sabotage != CARELESS:
        return

    def careless(error: Any, where: str) -> Exception:
        return TypeError(f"{where}: {error}")

    setattr(parsing, "_bad_value", careless)  # noqa: B010 - for the life of this process


if __name__ == "__main__":
    store, sabotage = sys.argv[1:]
    switch_in(sabotage)
    sys.argv = ["holdfast", "serve", "--port", "0", "--store", store]
    main()
