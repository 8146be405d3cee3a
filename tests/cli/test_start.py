"""`start`, `emit`, and what they say to a person who got it wrong."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import pytest

from holdfast.records import Presence
from holdfast.stores import make_store

SHOP = "shop.order.v1"


async def order(ctx, params):
    return params


@pytest.mark.spec("CLI-1", "START-2")
def test_start_prints_the_id_of_a_run_that_is_recorded(cli_):
    run = cli_.start(SHOP, '{"order": 7}')
    assert str(UUID(run)) == run
    assert cli_.json("show", run)["params"] == {"order": 7}


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(
    "text", ["null", "[]", "{}", "1e16", "-0.0", "-7", "9007199254740993", "123456789012345678901", '"ä€𝄞"']
)
def test_typed_params_are_recorded_exactly(cli_, work, text):
    run = cli_.start(SHOP, text)
    work(order=order)
    assert cli_("result", run).stdout.strip() == text


def test_params_can_come_from_stdin(cli_):
    run = cli_("start", SHOP, "-", stdin='{"order": 8}').stdout.strip()
    assert cli_.json("show", run)["params"] == {"order": 8}


def test_every_option_of_start_reaches_the_run(cli_):
    run = cli_.start(
        SHOP, "--key", "k1", "--priority", 7, "--run-at", "2100-01-01T00:00+00:00", "--tenant", "acme",
        "--max-attempts", 9, "--timeout", "2d", "--label", "team=blue", "--label", "a=b=c",
        "--limit-key", "api", "--ttl", "1d", "--budget", 2.5,
    )  # fmt: skip
    shown = cli_.json("show", run)
    told = [shown[name] for name in ("key", "priority", "run_at", "tenant", "max_attempts", "labels")]
    assert told == ["k1", 7, "2100-01-01T00:00:00Z", "acme", 9, {"team": "blue", "a": "b=c"}]
    assert shown["timeout_at"] is not None
    assert [shown[name] for name in ("limit_key", "ttl_seconds", "budget")] == ["api", 86400, 2.5]
    assert "limit key  api\n" in cli_("show", run).stdout


def test_the_same_key_again_names_the_existing_run(cli_):
    first = cli_.start(SHOP, "--key", "k")
    again = cli_("start", SHOP, "--key", "k")
    assert again.stdout.strip() == first
    assert "a run with this key exists" in again.stderr
    assert cli_.json("start", SHOP, "--key", "k")["created"] is False


def test_the_same_key_for_another_order_is_refused(cli_, work):
    work(order=order)
    cli_.start(SHOP, "1", "--key", "k")
    assert "key 'k' belongs to run" in cli_.refused("start", SHOP, "2", "--key", "k", code=1)


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{order: 7}", "at character 2, near '{order: 7}'"),
        ('{"a": 1,}', "at character"),
        ('{"a":\n 1 2}', "at line 2, column"),
        ("", "is empty"),
        ("NaN", "is not JSON"),
        ("@order.json", "write - and redirect, as in - < order.json"),
        ('"\\ud800"', "JSON"),
    ],
)
def test_bad_json_is_refused_with_the_place_and_an_example(cli_, tmp_path, text, where):
    line = cli_.refused("start", SHOP, text, code=2)
    assert where in line
    assert """'{"order": 7}'""" in line
    assert list(tmp_path.iterdir()) == []  # not even a store was made


@pytest.mark.spec("CLI-3")
def test_json_that_the_shell_has_cut_is_refused_with_quotes(cli_):
    line = cli_.refused("start", SHOP, "{id:", "7}", code=2)
    assert """put it in single quotes, as in '{"order": 7}'""" in line
    assert "unexpected extra argument (8)" in cli_.refused("start", SHOP, "7", "8", code=2)
    assert "unexpected extra argument (8)" in cli_.refused("start", SHOP, '{"id": 7}', "8", code=2)
    assert "the shell has cut the JSON" in cli_.refused("start", SHOP, "[" * 100_000, "8", code=2)


@pytest.mark.spec("CLI-3", "START-6")
def test_an_unknown_bare_name_is_refused_with_the_nearest(cli_, work):
    work(order=order, refund=order)
    line = cli_.refused("start", "shop.ordr", code=1)
    assert "no worker has published 'shop.ordr' here" in line
    assert "did you mean shop.order" in line


@pytest.mark.spec("START-6")
def test_a_bare_name_before_any_worker_says_how_to_start_one(cli_):
    line = cli_.refused("start", "shop.order", code=1)
    assert "no worker has published 'shop.order' here: start one (`holdfast dev MODULE:APP`)" in line
    assert line.endswith("or give the full type: shop.order.v1")


@pytest.mark.spec("START-6")
@pytest.mark.parametrize("name", ["shop.order.2", "shop.order.V2"])
def test_a_version_that_is_written_in_another_way_is_corrected(cli_, name):
    assert cli_.refused("start", name, code=1).endswith("or give the full type: shop.order.v2")


def test_a_bare_name_starts_the_newest_version(cli_, work):
    work(order=order)
    assert cli_.json("start", "shop.order")["type"] == SHOP


@pytest.mark.spec("START-6")
@pytest.mark.parametrize("name", ["order", "shop.order.v0", "shop order", "shop..v1", "ünï.code.v1"])
def test_a_malformed_type_is_refused_with_an_example(cli_, name):
    line = cli_.refused("start", name, code=2)
    assert "domain.action.vN" in line
    assert ".v1'" in line


@pytest.mark.spec("CLI-3")
def test_a_full_name_that_nobody_published_is_accepted_with_a_warning(cli_):
    found = cli_("start", "shop.oder.v1")
    assert found.exit_code == 0
    assert found.stderr.startswith("warning: no worker has published shop.oder.v1")


@pytest.mark.spec("CLI-3")
def test_a_type_that_a_worker_in_another_language_executes_is_no_doubt(cli_, url):
    """Such workers publish nothing."""
    store = make_store(url)

    async def present():
        await store.open()
        await store.present(Presence(worker="shop:1", types=(SHOP,), runtime="go"))
        await store.close()

    asyncio.run(present())
    assert cli_("start", SHOP).stderr == ""
    assert cli_("start", "--strict", SHOP).exit_code == 0
    assert "no worker has published" in cli_("start", "shop.oder.v1").stderr


@pytest.mark.spec("CLI-3")
def test_strict_refuses_a_full_name_that_nobody_published(cli_, work):
    work(order=order)
    line = cli_.refused("start", "--strict", "shop.oder.v1", code=1)
    assert "did you mean shop.order.v1?" in line
    assert cli_("ls", "--json").stdout == ""


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--priority", "1000", "--priority 1000: a whole number from 0 to 999"),
        ("--delay", "soon", "'soon' is not a duration: write seconds (90)"),
        ("--run-at", "tomorrow", "'tomorrow' is not a time: write 2030-12-24T18:00"),
        ("--label", "blue", "'blue' is not a label: write key=value"),
        ("--max-attempts", "0", "--max-attempts is 0: give a whole number from 1"),
        ("--budget", "-1", "--budget -1.0: give a cost above 0"),
        ("--limit-key", "", "--limit-key '': 1 to 255 characters"),
        ("--tenant", "", "tenant ''"),
        ("--tenant", "a\x1fb", "without NUL or U+001F"),
    ],
)
def test_a_wrong_option_is_refused_with_an_example(cli_, option, value, says):
    assert says in cli_.refused("start", SHOP, option, value, code=2)


def test_run_at_and_delay_together_are_refused(cli_, work):
    work(order=order)
    line = cli_.refused("start", SHOP, "--delay", "1s", "--run-at", "2100-01-01", code=2)
    assert "give --run-at or --delay, not both" in line


@pytest.mark.spec("CLI-1")
def test_emit_says_how_many_runs_it_woke(cli_, work):
    async def paid(ctx):
        return (await ctx.await_event("paid")).payload

    run = cli_.start("shop.paid.v1")
    work(paid=paid)
    assert cli_("emit", "paid", '{"eur": 3}', "--id", "e1").stdout == "woke 1 run\n"
    assert cli_.json("emit", "paid", '{"eur": 3}', "--id", "e1") == {
        "topic": "paid", "woken": 1, "duplicate": True,
    }  # fmt: skip
    work(paid=paid)
    assert json.loads(cli_("result", run).stdout) == {"eur": 3}


def test_an_event_that_wakes_no_run_is_kept_and_says_so(cli_):
    cli_.start(SHOP)
    assert "woke no run" in cli_("emit", "nobody-waits").stdout


def test_an_event_for_an_ended_run_is_refused_with_its_status(cli_):
    run = cli_.start(SHOP)
    cli_("cancel", run)
    assert "it is cancelled" in cli_.refused("emit", "paid", "--run", run, code=1)
