"""The shell commands of a page: its ```sh blocks run in one bash, against a server of the test.

A ```text block behind a ```sh block is what these commands print. Ids, times and secrets may differ from
those on the page, and `…` stands for any text.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs import pages

PORT = "8080"  # of the server, on every page
_MARK = "--- end of block"
_HOLDFAST = f'#!/bin/sh\nexec "{sys.executable}" -m holdfast.cli "$@"\n'
_PYTHON = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
_SERVING = re.compile(r"^serving (https?)://[^:]+:(\d+);")
_VARYING = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "<id>",
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z": "<time>",
    r"\b[0-9a-f]{32}\b": "<request>",
    r"\bhf_[a-z0-9]{12}_[A-Za-z0-9]{32}\b": "<secret>",
    r"\b[a-z0-9]{12}\b": "<key>",
}


@dataclass(frozen=True)
class Example:
    """Commands of a page, and what the page says that they print; None: it says nothing."""

    line: int
    commands: str
    printed: str | None


def examples(page: Path) -> list[Example]:
    found = pages.blocks(page)
    after = [*found[1:], None]
    return [
        Example(one.line, one.text, following.text if following and following.language == "text" else None)
        for one, following in zip(found, after, strict=True)
        if one.language == "sh"
    ]


def environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name != "HOLDFAST_STORE"}
    return env | {"PYTHONPATH": str(pages.ROOT / "src"), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def write_files(page: Path, folder: Path) -> None:
    for block in pages.python(page):
        if block.file:
            (folder / block.file).write_text(block.text, "utf-8")


def wrong_outputs(page: Path, folder: Path, port: int, written: str = PORT) -> list[str]:
    """Run the commands of a page; return what is not as the page says. port: instead of the written one."""
    found = examples(page)
    blocks = [f"{one.commands}\necho '{_MARK}'\n".replace(written, str(port)) for one in found]
    (folder / "bin").mkdir()
    for name, script in {"holdfast": _HOLDFAST, "python": _PYTHON}.items():
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    env = environment()
    env["PATH"] = f"{folder / 'bin'}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-u", "-c", "".join(blocks)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    printed = done.stdout.split(f"{_MARK}\n")[:-1]
    return [
        f"line {one.line}: {output}"
        for one, output in zip(found, printed, strict=True)
        if not matches(output, one.printed or "")
    ]


def matches(printed: str, expected: str) -> bool:
    """Say whether an output is the one of the page."""
    wanted = ".*?".join(re.escape(part.rstrip("\n")) for part in _general(expected).split("…"))
    return re.fullmatch(wanted, _general(printed).rstrip("\n"), re.DOTALL) is not None


def _general(text: str) -> str:
    for pattern, word in _VARYING.items():
        text = re.sub(pattern, word, text)
    # The columns of a table are as wide as its values.
    return "\n".join(re.sub(" +", " ", line).rstrip() for line in text.splitlines())


@contextlib.contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[int]:
    """Run `holdfast serve` with these arguments on a free port; yield the port. It must stop when asked."""
    with server(folder, *arguments) as (process, port):
        yield port
        process.terminate()
        assert process.wait(20) == 0


@contextlib.contextmanager
def server(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `holdfast serve` until the block ends; yield the process and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", "serve", *arguments, "--port", "0"],
        cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    guard = threading.Timer(55, process.kill)
    guard.start()
    try:
        yield process, _port(process)
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _port(process: subprocess.Popen[str]) -> int:
    """Read what a server says until it has said its address."""
    said = []
    for line in process.stderr or ():
        said.append(line)
        if found := _SERVING.match(line):
            return int(found[2])
    raise AssertionError("".join(said))
