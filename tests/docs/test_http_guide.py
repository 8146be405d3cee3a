"""The HTTP guide: its curl commands talk to a real server, and its tables match the program."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from holdfast.cli.main import cli
from holdfast.http.api.runs import WAIT_MAX_SECONDS
from holdfast.http.api.starts import BATCH_MAX
from holdfast.http.call import PAGE as PAGE_ITEMS
from holdfast.http.call import PAGE_MAX
from holdfast.http.limits import STREAMS_MAX, STREAMS_PER_KEY, STREAMS_PER_TENANT
from holdfast.http.operation import BODY_BYTES, all_operations
from holdfast.http.parsing import BODY_SECONDS
from holdfast.http.protocol import HEAD_BYTES, HEAD_SECONDS
from holdfast.http.serving import GRACE_SECONDS
from holdfast.http.streams import COMMENT_SECONDS, SEND_SECONDS
from servers.plugin import need
from tests.docs import pages, shell

PAGE = pages.ROOT / "docs" / "guide" / "http.md"
TEXT = PAGE.read_text("utf-8")
MOUNTED = """
from fastapi.testclient import TestClient
from shop import app
from web import web

from holdfast.http import asgi

with TestClient(web) as client:
    print(client.get("/workflows/readyz").json(), client.get("/workflows/runs").status_code)
    made = client.portal.call(lambda: app.create_key("shop", scopes=["runs.read", "runs.write"]))
    headers = {"Authorization": f"Bearer {made.secret}"}
    started = client.post("/workflows/runs", json={"type": "shop.report.v1"}, headers=headers)
    print(started.status_code, started.json()["type"])
    refused = client.get("/workflows/nothing", headers=headers).json()
    print(refused["type"], client.get(refused["type"].partition("#")[0]).status_code)
    print(client.get("/workflows/openapi.json").json()["servers"])
    internal = TestClient(asgi(app, open=True))
    internal.portal = client.portal
    print(internal.get("/workers").status_code)
    print(internal.get("/runs", headers={"Origin": "https://evil.example"}).json()["code"])
"""


@pytest.mark.slow
@pytest.mark.spec("HTTP-1", "HTTP-2", "HTTP-4")
def test_the_commands_print_what_the_page_says(tmp_path):
    """One server answers all commands of the page, in their order."""
    need("curl")
    shell.write_files(PAGE, tmp_path)
    (command,) = [line for line in pages.commands(PAGE) if line.startswith("holdfast serve ")]
    with shell.serving(tmp_path, *command.split()[2:]) as port:
        assert shell.wrong_outputs(PAGE, tmp_path, port) == []


@pytest.mark.slow
@pytest.mark.spec("HTTP-1", "TEN-3")
def test_the_api_can_be_mounted_in_fastapi(tmp_path):
    """It needs keys there too. With open=True it lets everyone in, except pages of other sites."""
    shell.write_files(PAGE, tmp_path)
    assert _python(MOUNTED, tmp_path) == [
        "{'status': 'ok'} 401",
        "201 shop.report.v1",
        "/workflows/docs/problems#not-found 200",
        "[{'url': '/workflows'}]",
        "200",
        "origin-refused",
    ]


def _python(script, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=folder, env=shell.environment(), capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_option_of_serve_is_in_the_table():
    (rows,) = re.findall(r"^\| option of `holdfast serve` .*\n\| --- .*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    options = {one for parameter in cli.get_command(None, "serve").params for one in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)`", rows))
    assert named == {one for one in options if one.startswith("--")} - {"--help"}


@pytest.mark.parametrize(
    "words",
    [
        f"a body without a value of yours | {BODY_BYTES // 1024} KiB |",
        f"| {BATCH_MAX} starts, ",
        f"| {BODY_SECONDS:g} s |",
        f"| {HEAD_BYTES // 1024} KiB; they must arrive within {HEAD_SECONDS:g} s |",
        f"| {PAGE_ITEMS} unless you say `limit=`, at most {PAGE_MAX}",
        f"| {WAIT_MAX_SECONDS:g} s |",
        f"| {STREAMS_PER_KEY:,} for a key, {STREAMS_PER_TENANT:,} for a tenant, {STREAMS_MAX:,} for a pro",
        f"every {COMMENT_SECONDS:g} s, so that",
        f"nothing for {SEND_SECONDS:g} s is dropped",
        f"have {GRACE_SECONDS} s to finish",
    ],
)
def test_a_number_on_the_page_is_that_of_the_program(words):
    assert words in TEXT


def test_the_container_starts_a_real_command_and_asks_real_addresses():
    (block,) = [block.text for block in pages.blocks(PAGE) if block.language == "yaml"]
    (command,) = re.findall(r"^ *command: (\[.*\])$", block, re.MULTILINE)
    name, *rest = json.loads(command)[1:]
    cli.get_command(None, name).make_context(name, rest)
    open_paths = {one.path for one in all_operations().values() if not one.scopes}
    asked = set(re.findall(r"path: (/\w+)", block))
    assert asked == {"/healthz", "/readyz"}
    assert asked <= open_paths
