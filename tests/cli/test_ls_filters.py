"""The filters of `ls`, and the children and fingerprints that `ls`, `show` and `explain` show."""

from __future__ import annotations

import base64
import json

import pytest

from holdfast import Backoff
from holdfast.cli.find import short
from holdfast.sealing.encrypt import ENVIRONMENT

SHOP, CHILD = "shop.order.v1", "shop.kid.v1"


async def broken(ctx):
    async def boom():
        raise ValueError("out of stock\nsorry")

    await ctx.step("boom", boom, retry=Backoff.none())


async def order(ctx):
    for n in range(3):
        await ctx.start(CHILD, key=f"kid {n}")
    await ctx.await_event("paid")


async def kid(ctx):
    await ctx.await_event("go")


def listed(cli_, *options):
    return [json.loads(line)["id"] for line in cli_("ls", "--json", *options).stdout.splitlines()]


@pytest.mark.spec("READ-2")
def test_ls_filters_by_label_error_and_roots(cli_, work):
    """The fingerprint that `show` prints finds the run."""
    vip = cli_.start("shop.broken.v1", "--label", "customer=42", "--label", "vip=")
    other = cli_.start("shop.broken.v1", "--label", "customer=43")
    work(broken=broken)
    assert listed(cli_, "--label", "customer=42") == [vip]
    assert listed(cli_, "--label", "customer") == [other, vip]
    assert listed(cli_, "--label", "customer", "--label", "vip=", "--roots") == [vip]
    line = next(line for line in cli_("show", vip).stdout.splitlines() if "fingerprint" in line)
    text = line.split(None, 1)[1]
    assert text == "ValueError at boom: out of stock sorry"
    assert cli_.json("show", vip)["fingerprint"] == text
    assert listed(cli_, "--error", text) == listed(cli_, "--error", "ValueError%") == [other, vip]
    assert listed(cli_, "--error", "KeyError%") == []
    assert " boom: ValueError: out of stock sorry (1 of 1)" in cli_("ls").stdout


@pytest.mark.spec("READ-2")
def test_ls_filters_by_time(cli_, work):
    """A duration ago, a date, or a time with its zone; of the start, the end or the last change."""
    run = cli_.start("shop.broken.v1")
    assert listed(cli_, "--since", "1h") == listed(cli_, "--since", "2020-01-31") == [run]
    assert listed(cli_, "--until", "1h") == listed(cli_, "--until", "2020-01-31T10:00+02:00") == []
    assert listed(cli_, "--since", "1h", "--by", "finished") == []
    work(broken=broken)
    for by in ("finished", "changed"):
        assert listed(cli_, "--since", "1h", "--by", by) == [run]
        assert listed(cli_, "--until", "1h", "--by", by) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "yesterday"], "--since 'yesterday' is no time: write 2h or 3d (ago)"),
        (["--until", "2026-01-31T10:00"], "--until '2026-01-31T10:00' has no time zone: add one"),
        (["--since", "90"], "is no time"),
        (["--label", "=x"], "write NAME=VALUE, or NAME for any value"),
        (["--label", "a=1", "--label", "a=2"], "each name once"),
    ],
)
def test_a_filter_that_means_nothing_is_refused_in_one_line(cli_, options, said):
    cli_.start(SHOP)
    refused = cli_("ls", *options)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.spec("READ-2")
def test_children_are_summed_up_at_their_parent(cli_, work):
    """In `ls`, `show` and `explain`, for people and for machines."""
    run = cli_.start(SHOP)
    work(order=order, kid=kid)
    counts = cli_.json("show", run)["child_counts"]
    assert counts == {"total": 3, "ended": 0, "by_status": {"waiting": 3}, "more": False}
    assert "0 of 3 children ended" in cli_("ls").stdout
    assert "Of its 3 children 0 have ended." in cli_("explain", run).stdout
    cli_("emit", "go")
    work(order=order, kid=kid)
    assert "3 of 3 children ended: " in cli_("show", run).stdout
    (root,) = map(json.loads, cli_("ls", "--json", "--roots").stdout.splitlines())
    assert (root["id"], root["child_counts"]["ended"]) == (run, 3)


@pytest.mark.spec("READ-2")
def test_a_filter_that_matches_nothing_hints_at_the_likely_mistake(cli_, work):
    cli_.start("shop.broken.v1")
    work(broken=broken)
    for given, hint in (
        (("--error", "ValueError"), "a prefix needs a % at its end"),
        (("--error", "KeyError%"), "without filters `holdfast ls` lists all"),
        (("--type", "shop"), "a prefix needs a % at its end: --type shop%"),
        (("--type", "shop.brokne"), "did you mean --type shop.broken?"),
        (("--type", "shop.broken.v2"), "did you mean --type shop.broken.v1?"),
        (("--type", "shop.broken", "--status", "paused"), "without filters `holdfast ls` lists all"),
        (("--type", "zzz"), "without filters `holdfast ls` lists all"),
    ):
        found = cli_("ls", *given)
        assert (found.stdout, found.exit_code) == ("", 0)
        assert found.stderr.startswith("no run matches; ")
        assert found.stderr.endswith(f"{hint}\n"), given


def started(cli_, count, params):
    return [cli_.start(SHOP, params) for _ in range(count)][::-1]


@pytest.mark.spec("READ-2")
def test_ls_finds_runs_that_contain_a_text(cli_, work):
    """Beside all other filters; the text is literal."""
    note = cli_.start(SHOP, '{"note": "100% \\"blue\\" é"}')
    cli_.start(SHOP, '"100 blue"')
    other = cli_.start("shop.broken.v1", '"the blue one"', "--label", "customer=42")
    for text in ('100% "blue" é', "100%", '"blue"', "é"):
        assert listed(cli_, "--contains", text) == [note]
    assert listed(cli_, "--contains", "blue", "--type", "shop.broken", "--label", "customer") == [other]
    assert listed(cli_, "--contains", "Blue") == []
    work(broken=broken, order=kid)
    assert listed(cli_, "--contains", "out of stock", "--status", "failed") == [other]
    assert short(other) in cli_("ls", "--contains", "the blue").stdout


@pytest.mark.spec("READ-2")
def test_ls_goes_on_after_the_runs_that_it_has_found(cli_):
    """It says how, and the ids of both pages are all there are."""
    blue = started(cli_, 3, '"blue"')
    started(cli_, 2, '"red"')
    for options in ((), ("--json",)):
        first = cli_("ls", "--contains", "blue", "--limit", "2", *options)
        assert len(first.stdout.splitlines()) == (2 if options else 3)
        said = f"4 runs looked at, more: holdfast ls --contains blue --limit 2 --after {blue[1]}"
        assert said in first.stderr
    assert listed(cli_, "--contains", "blue", "--limit", "2", "--after", blue[1]) == blue[2:]
    assert listed(cli_, "--contains", "blue", "--after", short(blue[1])) == blue[2:]


@pytest.mark.spec("READ-2")
def test_ls_stops_after_a_bounded_number_of_runs(cli_, monkeypatch):
    """It says so, although it has found nothing, and goes on there, also if that run is deleted now."""
    (blue,) = started(cli_, 1, '"blue"')
    red = started(cli_, 6, '"red"')
    monkeypatch.setattr("holdfast.bounds.SEARCH_RUNS", 2)
    monkeypatch.setattr("holdfast.cli.commands.ls.LOOKED_AT_MAX", 4)
    found = cli_("ls", "--contains", "blue")
    assert found.stdout == ""
    assert found.stderr.startswith("4 runs looked at, none of them holds the text; more: holdfast ls ")
    after = found.stderr.split()[-1]
    assert after == red[3]
    cli_("delete", after, "--yes")
    assert listed(cli_, "--contains", "blue", "--after", after) == [blue]
    monkeypatch.setattr("holdfast.cli.commands.ls.CALLS_MAX", 1)
    assert "2 runs looked at" in cli_("ls", "--contains", "blue", "--json").stderr


@pytest.mark.spec("READ-2")
def test_a_text_that_is_not_there_or_no_text_is_said_in_one_line(cli_):
    cli_.start(SHOP, '{"a": 1}')
    assert cli_("ls", "--contains", "b").stderr.startswith("no run matches; without filters ")
    assert "found inside of one JSON string" in cli_("ls", "--contains", '"a":1').stderr
    for text in ("", "x" * 201):
        refused = cli_("ls", "--contains", text)
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
        assert "--contains" in refused.stderr
        assert "200 characters" in refused.stderr
    refused = cli_("retry", "--where", "contains=a")
    assert refused.exit_code == 2
    assert "not chosen by a text" in refused.stderr


@pytest.mark.spec("READ-2")
def test_no_text_is_looked_for_in_encrypted_values(cli_, monkeypatch):
    """With the keys, and without them."""
    monkeypatch.setenv(ENVIRONMENT, f"k1={base64.b64encode(bytes(32)).decode()}")
    cli_.start(SHOP, '"blue"')
    for _ in range(2):
        refused = cli_("ls", "--contains", "blue")
        assert refused.exit_code == 2
        assert "no text can be looked for" in refused.stderr
        monkeypatch.delenv(ENVIRONMENT, raising=False)
