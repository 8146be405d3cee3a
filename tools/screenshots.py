"""`./hf screenshots`: pictures of the pages, from a store of `holdfast demo --fill`, with Chromium.

./hf screenshots                 the pictures of the docs, into docs/assets/pages, with a palette
./hf screenshots --all FOLDER    each page at three widths, light and dark, for looking at them
./hf screenshots --store URL     of a store that is there already
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, sync_playwright

from holdfast.cli.demo.fill import filled
from holdfast.records import Presence, RunFilter
from holdfast.stores import make_store
from servers import chromium
from tools.palette import smaller

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "assets" / "pages"
WIDTHS = {"phone": (390, 844), "tablet": (820, 1180), "wide": (1440, 900)}
DOCS = (1200, 750)
BEAT_SECONDS = 5.0
# Paths in tracebacks begin at the folder of the project: a picture shows no folder of this machine.
WITHOUT_ROOT = """(root) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(root, "");
}"""
# Without updates: one would bring the texts of the page back.
STILL = "window.EventSource = class { close() {} addEventListener() {} }"
SERVED = re.compile(r"http://[^\s/]+:\d+")


class Picture(NamedTuple):
    """A page. where: chooses the run that the path names with {run}; docs: its picture goes into the docs.

    opened: a selector of what is clicked first; status: of the answer.
    """

    path: str
    where: RunFilter | None = None
    docs: bool = False
    opened: str = ""
    status: int = 200


def pictures() -> dict[str, Picture]:
    """Return the pages, by the names of their pictures."""
    from holdfast.lifecycle import Status

    def runs(status: Status, type_: str) -> RunFilter:
        return RunFilter(statuses=(status,), type=type_)

    return {
        "overview": Picture("/", docs=True),
        "runs": Picture("/runs", docs=True),
        "run": Picture("/runs/{run}", runs(Status.SUCCEEDED, "shop.order.v2"), docs=True),
        "run-waiting": Picture("/runs/{run}", runs(Status.WAITING, "shop.order.v2")),
        "run-gate": Picture("/runs/{run}", runs(Status.WAITING, "shop.invoice.v1")),
        "run-failed": Picture("/runs/{run}", runs(Status.FAILED, "shop.refund.v1"), docs=True),
        "run-children": Picture("/runs/{run}", runs(Status.SUCCEEDED, "shop.import.v1")),
        "run-paused": Picture("/runs/{run}", runs(Status.PAUSED, "agent.research.v1")),
        "run-long": Picture("/runs/{run}", runs(Status.SUCCEEDED, "shop.count-shelves.v1")),
        "run-running": Picture("/runs/{run}", runs(Status.LEASED, "shop.order.v2")),
        "run-pending": Picture("/runs/{run}", runs(Status.PENDING, "shop.legacy.v1")),
        "run-chain": Picture("/runs/{run}", runs(Status.WAITING, "shop.watch-stock.v1")),
        "run-commands": Picture(
            "/runs/{run}", runs(Status.FAILED, "shop.refund.v1"), opened=".commands summary"
        ),
        "run-step": Picture("/runs/{run}?step=pay+back", runs(Status.FAILED, "shop.refund.v1")),
        "rerun": Picture("/runs/{run}/rerun", runs(Status.SUCCEEDED, "shop.order.v2")),
        "trail": Picture("/runs/{run}/trail", runs(Status.SUCCEEDED, "shop.order.v2")),
        "approvals": Picture("/approvals", docs=True),
        "runs-failed": Picture("/runs?q=status%3Dfailed"),
        "runs-filters": Picture("/runs?q=type%3Dshop.%25", opened=".filters summary"),
        "runs-none": Picture("/runs?q=type%3Dnothing"),
        "runs-wrong": Picture("/runs?q=colour%3Dred"),
        "bulk": Picture("/runs/bulk?verb=retry&q=status%3Dfailed"),
        "workflows": Picture("/workflows"),
        "workflow": Picture("/workflows/shop.order.v2"),
        "workflow-plan": Picture("/workflows/shop.invoice.v1"),
        "schedules": Picture("/schedules"),
        "schedule": Picture("/schedules/nightly%20import"),
        "limits": Picture("/limits", opened=".change summary"),
        "workers": Picture("/workers"),
        "outbox": Picture("/outbox"),
        "events": Picture("/events"),
        "keys": Picture("/keys"),
        "audit": Picture("/audit"),
        "settings": Picture("/", opened=".who summary"),
        "no-page": Picture("/nothing", status=404),
    }


async def _addresses(url: str) -> dict[str, str]:
    """Return the addresses of the pages, by the names of their pictures."""
    store, found = make_store(url), {}
    await store.open()
    try:
        for name, one in pictures().items():
            runs = [] if one.where is None else await store.list(one.where, 1)
            if one.where is None or runs:
                found[name] = one.path.replace("{run}", str(runs[0].id) if runs else "")
    finally:
        await store.close()
    return found


@contextlib.contextmanager
def served(url: str) -> Iterator[str]:
    """Serve the pages of a store; yield their address."""
    argv = [sys.executable, "-m", "holdfast.cli", "serve", "--port", "0", "--store", url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if (found := SERVED.search(line)) is not None:
                    yield f"{found.group()}/ui"
                    break
        finally:
            server.terminate()


@contextlib.contextmanager
def worker_shown(url: str) -> Iterator[None]:
    """Show a live worker on the pages: the one that holds the leases of the store's running runs."""
    ended = threading.Event()

    async def show() -> None:
        store = make_store(url)
        await store.open()
        types = tuple(one.type for one in await store.definitions())
        while not ended.is_set():
            await store.present(Presence(worker="worker-2", types=types, slots=4, sinks=("mail",)))
            await asyncio.to_thread(ended.wait, BEAT_SECONDS)
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(show()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _looks(*, every: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the looks of a page: the end of the picture's name, and options of the browser."""
    widths = WIDTHS if every else {"docs": DOCS}
    for name, (width, height) in widths.items():
        for scheme in ("light", "dark"):
            end = f"-{name}-{scheme}" if every else "" if scheme == "light" else "-dark"
            yield end, {"viewport": {"width": width, "height": height}, "color_scheme": scheme}


def take(
    browser: Browser,
    address: str,
    pages: dict[str, str],
    folder: Path,
    *,
    every: bool,
    wanted: Callable[[str], bool],
) -> None:
    """Take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for end, options in _looks(every=every):
        context = browser.new_context(**options, reduced_motion="reduce")
        context.add_init_script(STILL)
        page = context.new_page()
        for name, path in pages.items():
            if not wanted(name) or (not every and end == "-dark" and name != "run"):
                continue
            known = pictures()[name]
            answer = page.goto(f"{address}{path}")
            if answer is None or answer.status != known.status:
                print(f"{name}: no such page ({path})")
                continue
            if known.opened:
                page.locator(known.opened).first.click()
            page.evaluate(WITHOUT_ROOT, f"{ROOT}/")
            file = folder / f"{name}{end}.png"
            page.screenshot(path=file, full_page=every)
            if not every:
                file.write_bytes(smaller(file.read_bytes()))
            print(f"{file}: {file.stat().st_size // 1024} KB")
        context.close()


def main(argv: list[str] | None = None) -> None:
    """Fill a store, serve it, and take the pictures."""
    parser = argparse.ArgumentParser(prog="./hf screenshots", description=__doc__)
    parser.add_argument("--all", metavar="FOLDER", type=Path)
    parser.add_argument("--store", metavar="URL")
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="of a picture; may be repeated"
    )
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        url = args.store or f"sqlite:///{temporary}/demo.db"
        if args.store is None:
            print(f"{asyncio.run(filled(url))} runs")
        pages = asyncio.run(_addresses(url))
        found, every = chromium.find(Path(temporary) / "chromium"), args.all is not None
        known = pictures()
        with served(url) as address, worker_shown(url), sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=str(found.program),
                env={**os.environ, **found.environment},
                chromium_sandbox=os.geteuid() != 0,
            )
            take(
                browser,
                address,
                pages,
                args.all or FOLDER,
                every=every,
                wanted=lambda name: name in args.only if args.only else every or known[name].docs,
            )
            browser.close()


if __name__ == "__main__":
    main()
