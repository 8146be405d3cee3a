"""The worker as a program: `python tests/conformance/plain`, perhaps with `--broken NAME`."""

from __future__ import annotations

import argparse
import signal

import script
from broken import MISTAKES
from worker import Worker


def main() -> None:
    """Work until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--broken", choices=MISTAKES)
    broken = parser.parse_args().broken
    if broken is not None:
        MISTAKES[broken]()
    worker = Worker(script.run_script)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.work()


if __name__ == "__main__":
    main()
