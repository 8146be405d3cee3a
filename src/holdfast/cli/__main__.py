"""The start of the `holdfast` script and of `python -m holdfast.cli`. It imports nothing heavy at its top."""

from __future__ import annotations

from typing import NoReturn

from holdfast.cli import begin_imports


def start() -> NoReturn:
    """Run the `holdfast` script."""
    begin_imports()
    from .main import main

    main()


if __name__ == "__main__":
    start()
