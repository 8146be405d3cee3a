"""Fixtures for pages: a client without a network, a real server, and a real browser.

Modules with browser tests use no asyncio of their own: Playwright runs a loop in the thread of the test.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from servers.private import ServerError
from tests.http.kit import Kit
from tests.pages.kit import Browser, Site, Visit


@pytest.fixture
def visit():
    """A visitor of a server without keys, on a memory store with nothing in it; `visit.kit` has the app."""
    with Kit(open=True) as kit:
        yield Visit(kit)


@pytest.fixture(scope="module")
def furnished_visit():
    """The same with one thing of each kind; for tests that change nothing."""
    with Kit(open=True) as kit:
        yield Visit(kit.furnish())


@pytest.fixture
def keyed_visit():
    """A visitor of a server with keys; `visit.sign_in(Scope.RUNS_READ)` makes a key and signs in."""
    with Kit() as kit:
        yield Visit(kit)


@pytest.fixture
def site():
    """Function that serves an app on loopback: `site(app).url`. Options are those of `asgi`."""
    with ExitStack() as stack:

        def serve(app, **options):
            return stack.enter_context(Site(app, **options))

        yield serve


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A running browser."""
    from playwright.sync_api import sync_playwright

    from servers import chromium

    try:
        found = chromium.find(tmp_path_factory.mktemp("chromium"))
    except ServerError as error:
        pytest.fail(str(error), pytrace=False)
    import os

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(found.program),
            env={**os.environ, **found.environment},
            chromium_sandbox=os.geteuid() != 0,  # it does not start as root
        )
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium):
    """A new profile for this test. At the end there must be no error, CSP report or request to others."""
    opened = Browser(chromium)
    try:
        yield opened
        assert opened.troubles == []
    finally:
        opened.close()
