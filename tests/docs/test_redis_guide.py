"""The page about Redis: its commands work on a real server, and its tables name every key and every field."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.machine.rows import StepRow
from holdfast.stores import redis as package
from holdfast.stores.redis import address, rows
from holdfast.stores.redis.producing import producer
from servers import debian, golang, redis_programs
from servers.plugin import missing, started
from servers.private import ServerError
from servers.redis import running_redis
from tests.docs import pages, shell

PAGE = pages.ROOT / "docs" / "redis.md"
TEXT = PAGE.read_text("utf-8")
SOURCES = Path(package.__file__).parent
NPM_REDIS = "5.8.2"
REQUIRED_BY = "HOLDFAST_REQUIRE_CLIENTS"  # without it, a language that is not here is a skipped test
CODED = frozenset(
    re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL))
)


def section(title):
    """Return the text under a heading."""
    return TEXT.partition(f"# {title}\n")[2].split("\n#")[0]


def first_column(title):
    rows_ = re.findall(r"^\| (`.+?) \|", section(title), re.MULTILINE)
    return [name for row in rows_ for name in re.findall(r"`([^`]+)`", row)]


def key_kinds():
    """Return the names of keys in the sources, up to the first part that varies."""
    found = set()
    for source in SOURCES.rglob("*.py"):
        text = source.read_text("utf-8")
        found |= {one[0] for one in re.findall(r'names(?:\.of)?\(\s*f?"([^"{]+)("|\{)', text)}
        found |= set(re.findall(r'self\.of\("([a-z:]+)"', text))
        found |= set(re.findall(r'self\("([a-z]+)"\)', text))
        found |= set(re.findall(r"self\.tag\}:([a-z]+):", text))
    for source in SOURCES.rglob("*.lua"):
        found |= set(re.findall(r"(?:tag|root) \.\. '([^']+)'", source.read_text("utf-8")))
    return {one.strip(":") for one in found}


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_the_commands_print_what_the_page_says(tmp_path, monkeypatch):
    try:
        client, env = redis_programs.client()
    except ServerError as error:
        missing(str(error), "CI")
    programs = tmp_path / "redis-client"  # its own folder has a server too, which needs libraries
    programs.mkdir()
    (programs / "redis-cli").symlink_to(client)
    for name, value in {"PATH": f"{programs}:{os.environ['PATH']}", **env}.items():
        monkeypatch.setenv(name, value)
    with started(running_redis(listens=["port"])) as server:
        assert shell.wrong_outputs(PAGE, tmp_path, server.port, "6379") == []


@pytest.fixture
def node_modules(tmp_path):
    """The package `redis` of npm, installed once into the cache of the user."""
    need_any("node", "npm")
    cache = debian.cache_folder(tmp_path) / f"npm-redis-{NPM_REDIS}"
    if not cache.is_dir():
        partial = Path(tempfile.mkdtemp(dir=cache.parent))
        words = ("--no-save", "--ignore-scripts", "--no-audit", "--no-fund", f"redis@{NPM_REDIS}")
        try:
            debian.call(["npm", "install", *words], cwd=partial)
            debian.keep(partial, cache)
        except ServerError as error:
            missing(str(error), REQUIRED_BY)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return cache / "node_modules"


@pytest.fixture
def go_path(tmp_path):
    """The package redigo of Debian, unpacked into the cache of the user."""
    if not debian.available():
        missing("the package redigo is had from Debian", REQUIRED_BY)
    try:
        return debian.unpacked("golang-github-gomodule-redigo-dev", tmp_path) / "usr/share/gocode"
    except ServerError as error:
        missing(str(error), REQUIRED_BY)


def need_any(*tools):
    if absent := [tool for tool in tools if shutil.which(tool) is None]:
        missing(f"not on the PATH: {', '.join(absent)}", REQUIRED_BY)


def printed_by(language, file, folder, *command, **env):
    """Run a program of the page against a server with a store. Return its output and the run."""
    (block,) = [one for one in pages.blocks(PAGE) if one.language == language]
    (folder / "producer.lua").write_text(producer(), "utf-8")
    with started(running_redis(listens=["port"])) as server:
        (folder / file).write_text(block.text.replace("6379", str(server.port)), "utf-8")
        app = hf.App(server.url())
        with app.sync:
            app.sync.definitions()  # opens the store, which makes it
            done = subprocess.run(
                command, cwd=folder, env=shell.environment() | env, capture_output=True, text=True,
                timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            id_, created = done.stdout.split()
            return created, app.sync.get(id_)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.spec("STORE-3")
def test_the_program_for_node_starts_a_run(tmp_path, node_modules):
    (tmp_path / "node_modules").symlink_to(node_modules)
    created, run = printed_by("js", "start.mjs", tmp_path, "node", "start.mjs")
    assert (created, run.type, run.params, run.key) == ("1", "shop.order.v1", {"order": 20}, "order-20")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.spec("STORE-3")
def test_the_program_for_go_starts_a_run(tmp_path, go_path):
    try:
        go = golang.find(tmp_path) / "go"
    except ServerError as error:
        missing(str(error), REQUIRED_BY)
    settings = {
        "GO111MODULE": "off",
        "GOPATH": str(go_path),
        "GOFLAGS": "",
        "GOCACHE": str(debian.cache_folder(tmp_path) / "go-build"),
    }
    created, run = printed_by("go", "start.go", tmp_path, go, "run", "start.go", **settings)
    assert (created, run.type, run.params, run.key) == ("1", "shop.order.v1", {"order": 21}, "order-21")


@pytest.mark.spec("STORE-3")
def test_every_key_is_described():
    known = {re.split(r"[<…]", one.removeprefix("{p}:"))[0].strip(":") for one in CODED if "{p}:" in one}
    missing = {one for one in key_kinds() if one not in known and not one.startswith("status:")}
    assert missing == {"leased"}  # it is followed by a scope
    assert {"leased:type", "leased:tenant", "leased:key"} <= known
    assert len(known) > 60


@pytest.mark.spec("STORE-3")
def test_every_field_of_a_run_is_described_once():
    assert sorted(first_column("Fields of a run")) == sorted(rows.FIELDS)


@pytest.mark.spec("STORE-3")
def test_every_field_of_a_step_is_described_once():
    assert sorted(first_column("Fields of a step")) == sorted(StepRow.__struct_fields__)


@pytest.mark.spec("STORE-3")
def test_every_field_of_an_event_is_described():
    row = next(line for line in TEXT.splitlines() if line.startswith("| `{p}:event:"))
    fields = {one for one in rows.EventRow.__struct_fields__ if not one.startswith("_")}
    assert set(re.findall(r"`([a-z]+)`", row)) == fields


@pytest.mark.spec("STORE-8")
def test_every_option_and_every_durability_is_described():
    assert {*address._OURS} <= {one.partition("=")[0] for one in CODED if "=" in one}
    assert first_column("Durability")[:1] == [address.DURABILITIES[0]]
    assert set(address.DURABILITIES) <= {*first_column("Durability")}
    for scheme in address.SCHEMES:
        assert f"`{scheme}://" in TEXT
