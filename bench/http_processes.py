"""The server processes of the HTTP benchmarks: they are begun, asked for figures, and ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bench.measurements import Row, begun


@contextmanager
def server(what: str, *args: object) -> Iterator[tuple[subprocess.Popen[str], Row]]:
    """Run a server while the block runs; yield its process, and what it said first."""
    process = begun("http_servers", what, *args)
    assert process.stdin
    assert process.stdout
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def asked(process: subprocess.Popen[str]) -> Row:
    """Return the present figures of a server."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())  # type: ignore[no-any-return]
