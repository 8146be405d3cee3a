"""The command line through the HTTP API: the same words, the same JSON, the same exit codes."""

from __future__ import annotations

import json
import re
import socket

import pytest

from holdfast.records import Scope
from tests.cli.conftest import Cli, eventually
from tests.client.kit import ALL, EVERY, Serving, shop

SECOND = re.compile(r"\b(now|just now|[0-9.,]+ (ms|s|min)( ago)?|in [0-9.,]+ (ms|s|min|h))\b")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store with runs of many kinds, a server of it, and both ways to it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('api') / 'runs.db'}"
    with Serving(shop(url), worker=True) as server:
        direct, api = Cli(url), Cli(server.url)
        app = server.app
        server.run(
            app.start(
                "shop.quick.v1", {"big": 2**80, "whole": 1.0, "text": "é\u2028"}, key="k", labels={"a": "b"}
            )
        )
        server.run(app.start("shop.broken.v1"))
        server.run(app.start("shop.gated.v1", 5))
        server.run(app.start("shop.order.v1", {"id": 1}))
        server.run(app.start("shop.chain.v1", 1))
        server.run(app.of("acme").start("shop.quick.v1", 1, delay=3600))
        server.run(app.schedule("nightly", "shop.report", cron="0 3 * * *", zone="Europe/Berlin"))
        server.run(app.schedule("often", "shop.report.v1", every=5400, jitter=1.5))
        server.run(app.limit(key="api/v2", concurrency=3, rate=(100, 60)))
        server.run(app.register("shop.other", runtime="go"))
        server.run(app.webhook("hook", "https://example.com/hook"))
        server.run(app.create_key("reader", scopes=["runs.read"], tenant="acme"))
        server.run(app.store.use_keys([]))
        eventually(lambda: settled(server))
        server.run(stopped(server))
        yield server, direct, api


def settled(server):
    by_status = server.run(server.app.stats()).by_status
    return (by_status["waiting"], by_status["leased"], by_status["pending"]) == (2, 0, 1)


async def stopped(server):
    """Let nothing move from here on."""
    await server._stack.__aexit__(None, None, None)
    server._worker = False

    class Nothing:
        async def __aexit__(self, *error):
            pass

    server._stack = Nothing()


def runs_of(cli):
    return {one["type"]: one["id"] for one in map(json.loads, cli("ls", "--json").stdout.splitlines())}


SAME = [
    "ls --json", "ls --json --limit 2", "ls --json --status failed",
    "ls --json --type shop.quick --tenant acme",
    "ls --json --label a=b --key k", "ls --json --error ValueError%", "ls --json --contains declined",
    "ls --since 2h --json",
    "ls --json --after {shop.broken.v1}",
    "show {shop.quick.v1} --json", "show {shop.broken.v1} --json", "show {shop.gated.v1} --json",
    "show {shop.chain.v1} --json",
    "trail {shop.order.v1} --json", "trail --json", "trail --json --limit 3 --after 2",
    "trail {shop.broken.v1}",
    "trail {shop.chain.v1} --follow --json",
    "explain {shop.order.v1} --json", "explain {shop.broken.v1}", "result {shop.quick.v1} --json",
    "result {shop.broken.v1} --json",
    "result {shop.order.v1} --timeout 0 --json",
    "approvals --json", "definitions --json", "definitions shop.gated", "schedule ls --json",
    "schedule show nightly --json",
    "schedule show often --json", "limit ls --json", "registry ls --json", "outbox ls --all --json",
    "sink ls --json",
    "bulk ls --json", "keys ls --json", "audit --json", "ls --tenant nobody", "show ffffffff", "show xyz",
    "explain abcdef12",
    "cancel {shop.broken.v1}", "retry {shop.quick.v1}", "resume {shop.order.v1}", "ls --status odd",
    "schedule show none",
    "outbox show 1234567", "registry rm none", "limit rm --key none", "approve {shop.order.v1}",
    "rewind {shop.quick.v1} none",
]  # fmt: skip


@pytest.mark.spec("CLI-2", "CLI-6")
@pytest.mark.parametrize("words", SAME)
def test_both_ways_print_the_same(words, place):
    _, direct, api = place
    named = re.sub(r"\{(.*?)\}", lambda found: runs_of(direct)[found[1]], words).split()
    one, other = direct(*named), api(*named)
    assert (one.exit_code, one.stdout) == (other.exit_code, other.stdout)
    assert SECOND.sub("TIME", one.stderr) == SECOND.sub("TIME", other.stderr)


@pytest.mark.spec("CLI-6")
@pytest.mark.parametrize("words", ["ls", "show {shop.gated.v1}", "show {shop.broken.v1} --full",
"schedule ls", "approvals",
                                   "schedule show nightly", "doctor", "keys ls", "limit ls"])  # fmt: skip
def test_both_ways_say_the_same_to_people(words, place):
    _, direct, api = place
    named = re.sub(r"\{(.*?)\}", lambda found: runs_of(direct)[found[1]], words).split()
    one, other = direct(*named), api(*named)
    assert one.exit_code == other.exit_code
    blank = [re.sub(r"[\s-]+", " ", SECOND.sub("TIME", found.stdout)) for found in (one, other)]
    if words != "doctor":  # it measures as it goes
        assert blank[0] == blank[1]


@pytest.fixture
def served(url):
    with Serving(shop(url), worker=True) as server:
        yield server, Cli(server.url)


@pytest.mark.spec("CLI-6")
@pytest.mark.slow
def test_a_whole_day_through_the_api(served):
    _, cli = served
    found = cli("start", "shop.quick", '{"a": 1.0, "b": 123456789012345678901}', "--wait", "--label", "x=y")
    assert (found.exit_code, found.stdout) == (0, '{"a":1.0,"b":123456789012345678901}\n')
    assert "succeeded" in found.stderr
    assert cli("start", "shop.broken.v1", "--wait").exit_code == 1
    assert "no worker has published shop.none.v1" in cli("start", "shop.none.v1").stderr
    assert cli.refused("start", "shop.quik", code=1).startswith("holdfast: ")
    run = cli.start("shop.order.v1", '{"id": 7}', "--key", "order 7")
    assert cli.start("shop.order.v1", '{"id": 7}', "--key", "order 7") == run
    assert "belongs to run" in cli.refused("start", "shop.order.v1", '{"id": 8}', "--key", "order 7", code=1)
    eventually(lambda: cli.json("show", run)["status"] == "waiting")
    assert cli.json("pause", run)["status"] == "paused"
    assert cli.json("resume", run[-8:])["status"] in {"pending", "waiting"}
    assert cli.json("emit", "paid:7", '"now"')["topic"] == "paid:7"
    assert json.loads(cli("result", run, "--json").stdout)["result"] == "receipt 7"
    assert cli.json("rerun", run)["origin"] == run
    assert "1 run done" in cli("cancel", "--where", "type=shop.order", "--yes").stdout
    assert cli.json("delete", run)["deleted_at"] is not None
    assert "was deleted" in cli("explain", run).stdout
    assert cli.json("restore", run)["deleted_at"] is None
    assert (
        cli.json("prioritize", cli.start("shop.order.v1", '{"id": 9}', "--delay", "1h"), 5)["priority"] == 5
    )
    gate = cli.start("shop.gated.v1", "3")
    eventually(lambda: cli("approvals", "--json").stdout)
    assert "approved by http" in cli("approve", gate).stdout
    assert cli("schedule", "add", "n", "shop.report", "--every", "5m").exit_code == 0
    fired = cli.json("schedule", "fire", "n")
    assert fired["tenant"] == "default"
    assert cli.json("schedule", "pause", "n")["paused"]
    assert cli("schedule", "rm", "n").stdout == "schedule n is removed\n"
    assert "3 at once" in cli("limit", "set", "--key", "a/b", "--concurrency", 3).stdout
    assert cli("limit", "rm", "--key", "a/b").exit_code == 0
    assert cli.json("sink", "add", "hook", "https://example.com/x")["secret"].startswith("whsec_")
    assert cli.json("registry", "disable", "shop.report")["is_enabled"] is False


@pytest.mark.spec("CLI-6")
def test_commands_that_need_the_store_itself_say_so(served):
    _, cli = served
    for words in (["tick"], ["purge", "--yes"], ["migrate"], ["serve"], ["export", "a.jsonl"]):
        said = cli.refused(*words, code=2)
        assert "this needs the store itself" in said, words
    assert "leave --by out" in cli.refused("schedule", "pause", "n", "--by", "ada", code=2)
    said = cli.refused("keys", "create", "x", "--scope", "operator", code=2)
    assert "an operator key needs the store itself" in said


REMOTE = """
import holdfast as hf

app = hf.App()


@app.workflow("shop.remote.v1")
async def remote(ctx: hf.Context) -> None:
    pass
"""


@pytest.mark.spec("CLI-6")
@pytest.mark.parametrize("command", ["dev", "serve"])
def test_an_app_over_http_is_refused_where_the_store_itself_is_needed(served, tmp_path, monkeypatch, command):
    _, cli = served
    (tmp_path / "remote_shop.py").write_text(REMOTE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    more = ["--no-reload"] if command == "dev" else []
    said = cli.refused(command, "remote_shop:app", *more, code=2)
    assert "this needs the store itself" in said
    assert "`holdfast worker remote_shop:app`" in said


@pytest.mark.spec("CLI-2", "CLI-6")
def test_a_server_that_is_away_is_exit_code_3(tmp_path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{one.getsockname()[1]}"
    said = Cli(url).refused("ls", code=3)
    assert said == f"holdfast: the server {url} cannot be reached: Connection refused"
    assert "is not the URL of a server" in Cli("http://").refused("ls", code=2)
    assert "or in HOLDFAST_KEY" in Cli("http://a:s3cr3t@host").refused("ls", code=2)


@pytest.mark.spec("CLI-6", "TEN-2")
def test_the_key_comes_from_the_environment_and_its_tenant_is_that_of_the_commands(url):
    with Serving(shop(url), open=False) as server:
        key = server.key(*ALL, name="acme", tenant="acme")
        boss = server.key(*EVERY, name="boss")
        reader = server.key(Scope.RUNS_READ, name="reader", tenant="acme")
        cli = Cli(server.url)
        assert "wants an API key" in cli.refused("ls", code=1)
        assert "not one of Holdfast" in cli.refused("ls", code=2, env={"HOLDFAST_KEY": "s3cr3t"})
        acme = {"HOLDFAST_KEY": key}
        run = cli("start", "shop.quick.v1", "7", env=acme).stdout.strip()
        assert json.loads(cli("show", run, "--json", env=acme).stdout)["tenant"] == "acme"
        assert run[-8:] in cli("ls", env=acme).stdout
        assert json.loads(cli("emit", "t", "--json", env=acme).stdout)["duplicate"] is False
        assert "lacks" not in cli("retry", "--where", "status=failed", "--yes", env=acme).stderr
        assert cli("schedule", "add", "n", "shop.report.v1", "--every", "1h", env=acme).exit_code == 0
        assert json.loads(cli("schedule", "fire", "n", "--json", env=acme).stdout)["tenant"] == "acme"
        assert "scope operator" in cli.refused("ls", "--tenant", "other", code=1, env=acme)
        assert "scope operator" in cli.refused("limit", "ls", code=1, env=acme)
        assert run[-8:] in cli("ls", env={"HOLDFAST_KEY": boss}).stdout  # an operator sees all tenants
        assert json.loads(cli("show", run, "--json", env={"HOLDFAST_KEY": boss}).stdout)["params"] == 7
        shown = cli("show", run, env={"HOLDFAST_KEY": reader})
        assert "unreadable (the API key lacks the scope payloads.read)" in shown.stdout
        made = json.loads(cli("keys", "create", "two", "--scope", "runs.read", "--json", env=acme).stdout)
        assert made["key"]["tenant"] == "acme"
        assert "HOLDFAST_KEY" in cli("--help").stdout
        assert key not in "".join(
            cli(*words, env=acme).stdout for words in (["ls"], ["keys", "ls"], ["audit"])
        )
