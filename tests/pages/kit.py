"""Visitors of pages: without a network, and with a browser."""

from __future__ import annotations

import re
from contextlib import ExitStack
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.routing import Mount

from tests.http.real import served

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PHONE = {"width": 360, "height": 740}


def wait_for_rows(page, number):
    """Wait until a page in the browser has so many rows: after a click it may still be on its way."""
    from playwright.sync_api import expect

    expect(page.locator(".row")).to_have_count(number)


class Visit:
    """A visitor without script: follows redirects, keeps cookies, and fills in forms."""

    def __init__(self, kit, prefix=""):
        self.kit, self.client, self.prefix, self.last = kit, kit.client, prefix, None

    def get(self, path, **options):
        """Load a page below `/ui`; return the response."""
        self.last = self.client.get(f"{self.prefix}/ui{path}", **options)
        return self.last

    def text(self, path="/", **options):
        """Load a page that must be there; return its HTML."""
        response = self.get(path, **options)
        assert response.status_code == 200, response.text
        return response.text

    def sign_in(self, *scopes, **options):
        """Make a key with these scopes, and sign in; return the response."""
        return self.sign_in_with(self.kit.key(*scopes, **options))

    def sign_in_with(self, key, **fields):
        self.last = self.client.post(f"{self.prefix}/ui/sign-in", data={"key": key, **fields})
        return self.last

    @property
    def csrf(self):
        """The token of the forms of the last page."""
        return unescape(re.search(r'name="csrf" value="([^"]+)"', self.last.text)[1])

    def do(self, operation, **fields):
        """Send a form of the last page: names as `path.run` are written `path_run`."""
        csrf = fields.pop("csrf", None) or self.csrf
        given = {name.replace("_", ".", 1) if name.startswith(("path_", "body_", "query_")) else name: value
                 for name, value in fields.items()}  # fmt: skip
        self.last = self.client.post(f"{self.prefix}/ui/do/{operation}", data={"csrf": csrf, **given})
        return self.last

    def send(self, operation, number=0, **changes):
        """Send a form of the last page as a browser does, with some fields changed; number: which of them."""
        fields = forms_of(self.last.text, operation)[number]
        named = {name.replace("_", ".", 1) if name.startswith(("path_", "body_")) else name: value
                 for name, value in changes.items()}  # fmt: skip
        self.last = self.client.post(f"{self.prefix}/ui/do/{operation}", data={**fields, **named})
        return self.last

    @property
    def said(self):
        """The message on the last page; empty when there is none."""
        found = re.search(r'<p class="said[^>]*>([^<]*)</p>', self.last.text)
        return unescape(found[1]) if found else ""


class _Forms(HTMLParser):
    """Reads the fields of the forms that call one operation."""

    def __init__(self, operation):
        super().__init__()
        self.operation, self.forms, self._open, self._area, self._select = operation, [], False, None, None

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "form":
            self._open = given.get("action", "").partition("?")[0].endswith(f"/do/{self.operation}")
            if self._open:
                self.forms.append({})
        if not self._open:
            return
        if tag == "input" and "name" in given and (given.get("type") != "checkbox" or "checked" in given):
            self.forms[-1][given["name"]] = given.get("value") or ""
        elif tag == "textarea":
            self._area = given["name"]
            self.forms[-1][self._area] = ""
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and (self._select not in self.forms[-1] or "selected" in given):
            self.forms[-1][self._select] = given.get("value", "")

    def handle_data(self, data):
        if self._area is not None:
            self.forms[-1][self._area] += data

    def handle_endtag(self, tag):
        if tag == "form":
            self._open = False
        elif tag == "textarea":
            self._area = None


def forms_of(text, operation):
    """Return the fields of each form of a page that calls an operation, as a browser would send them."""
    parser = _Forms(operation)
    parser.feed(text)
    return parser.forms


class Site:
    """A server on loopback, in a thread; `call` runs a coroutine function on its loop."""

    def __init__(self, app, *, prefix="", **options):
        options = {"open": True, **options}
        self.app, self.prefix, self._options, self._stack = app, prefix, options, ExitStack()

    def __enter__(self):
        wrap = (lambda made: mounted(made, self.prefix)) if self.prefix else None
        self.port, self.call = self._stack.enter_context(served(self.app, wrap=wrap, **self._options))
        self.url = f"http://127.0.0.1:{self.port}{self.prefix}/ui"
        return self

    def __exit__(self, *error):
        self._stack.close()


class Browser:
    """The pages of one test in a real browser. `troubles` has what went wrong in them."""

    def __init__(self, chromium):
        self._chromium, self._contexts, self.troubles = chromium, [], []

    def page(self, url, **options):
        """Open a page in a profile of its own. Options are those of Playwright's `new_context`."""
        context = self._chromium.new_context(**options)
        context.set_default_timeout(30_000)  # of a busy machine, too
        self._contexts.append(context)
        page, host = context.new_page(), urlsplit(url).netloc
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on(
            "console", lambda line: line.type == "error" and self.troubles.append(f"console: {line.text}")
        )
        page.on("request", lambda one: self._check_host(one.url, host))
        page.goto(url)
        return page

    def _check_host(self, url, host):
        if urlsplit(url).scheme != "data" and urlsplit(url).netloc != host:
            self.troubles.append(f"request to another host: {url}")

    def check_accessible(self, page, *rules):
        """Fail if axe-core has serious findings on the page; rules: only by these."""
        page.evaluate(AXE.read_text())
        options = {"resultTypes": ["violations"], **({"runOnly": [*rules]} if rules else {})}
        found = page.evaluate("options => axe.run(document, options)", options)
        bad = [
            f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in {"serious", "critical"}
        ]
        assert bad == []

    def close(self):
        for one in self._contexts:
            one.close()


def mounted(asgi_app, prefix):
    """Return an application that has the API below a prefix."""
    return Starlette(routes=[Mount(prefix, app=asgi_app)])
