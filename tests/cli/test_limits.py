"""`holdfast registry` and `holdfast limit`, as a person types them."""

from __future__ import annotations

import json

import pytest

TYPE = "shop.order.v1"


@pytest.fixture(autouse=True)
def _a_store(cli_):
    cli_.start(TYPE)


def said(cli_, *args):
    found = cli_(*args)
    assert found.exit_code == 0, found.stderr
    return found.stdout.strip()


def rows(cli_, *args):
    return [json.loads(line) for line in cli_(*args, "--json").stdout.splitlines()]


@pytest.mark.spec("REG-1", "CLI-1")
def test_a_type_is_registered_switched_off_and_on_and_removed(cli_, work):
    """Each command says what holds from then on; what is disabled waits."""
    assert (
        said(cli_, "registry", "set", TYPE, "--description", "orders")
        == f"{TYPE} is executed by python workers"
    )
    assert said(cli_, "registry", "disable", TYPE) == f"{TYPE} is disabled: its runs wait"
    shown = said(cli_, "registry", "ls").splitlines()[1].split()
    assert shown[:3] + shown[-1:] == [TYPE, "python", "disabled", "orders"]
    assert "disabled" in said(cli_, "explain", cli_.json("ls")["id"])
    assert cli_.json("registry", "enable", TYPE)["is_enabled"] is True
    (entry,) = rows(cli_, "registry", "ls")
    assert (entry["workflow_name"], entry["runtime"], entry["intent_type"]) == (TYPE, "python", "workflow")
    assert said(cli_, "registry", "set", TYPE, "--runtime", "go") == f"{TYPE} is executed by go workers"
    assert said(cli_, "registry", "rm", TYPE) == f"{TYPE} is executed again by every worker that has it"
    assert cli_("registry", "ls").stderr == "no entries: every worker executes all types that it has\n"

    async def order(ctx):
        return 1

    work(order=order)
    assert cli_.json("ls")["status"] == "succeeded"


@pytest.mark.spec("LIMIT-1", "LIMIT-2", "LIMIT-3")
def test_limits_are_set_listed_and_removed(cli_):
    """By type, tenant and key; what is printed can be read again."""
    made = said(cli_, "limit", "set", "--type", TYPE, "--concurrency", 3, "--rate", "100/1m")
    assert made == f"type {TYPE}: 3 at once, 100 in 60 s"
    assert said(cli_, "limit", "set", "--tenant", "%", "--weight", 2) == "tenant %: weight 2"
    assert cli_.json("limit", "set", "--key", "api.%", "--concurrency", 1)["concurrency"] == 1
    assert [(one["scope"], one["name"], one["rate"]) for one in rows(cli_, "limit", "ls")] == [
        ("key", "api.%", None), ("tenant", "%", None), ("type", TYPE, 100),
    ]  # fmt: skip
    head = said(cli_, "limit", "ls").splitlines()[0]
    assert " ".join(head.split()) == "SCOPE NAME AT ONCE RATE WEIGHT PAUSED"
    assert said(cli_, "limit", "rm", "--key", "api.%") == "key api.% is not limited any more"
    assert cli_.json("limit", "rm", "--tenant", "%") == {"scope": "tenant", "name": "%", "removed": True}


@pytest.mark.spec("LIMIT-2")
def test_a_key_is_paused_for_a_while_and_resumed(cli_):
    """`--for` from now, `--until` an instant."""
    assert said(cli_, "limit", "pause", "api", "--for", "5m") == "key api: paused, ends in 5 min"
    assert cli_.json("limit", "pause", "web", "--until", "2999-01-01T00:00:00Z")["paused_until"].startswith(
        "2999"
    )
    assert [one["name"] for one in rows(cli_, "limit", "ls")] == ["api", "web"]
    assert said(cli_, "limit", "resume", "api") == "key api is not paused any more"
    assert said(cli_, "limit", "resume", "api") == "key api was not paused"


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("limit", "set", "--concurrency", 1), "a limit needs exactly one of --type, --tenant and --key"),
        (("limit", "set", "--key", "k"), "give --concurrency N, --rate 100/1m or --weight X"),
        (("limit", "set", "--key", "k", "--rate", "fast"), "such as 100/1m"),
        (("limit", "set", "--key", "k", "--rate", "0/1m"), "such as 100/1m"),
        (("limit", "set", "--key", "k", "--rate", "5/0s"), "such as 100/1m"),
        (
            ("limit", "set", "--key", "k", "--weight", 2),
            "--weight is the share of a tenant: give it with --tenant",
        ),
        (("limit", "set", "--tenant", "k", "--weight", 0), "--weight is 0.0: give a number from 0.001"),
        (("limit", "rm"), "a limit needs exactly one of --type, --tenant and --key"),
        (("limit", "pause", "k"), "give --for 5m, or --until"),
        (("limit", "wat"), "limit has no command 'wat': ls, set, rm, pause, resume"),
        (("registry", "set", "shop"), "is not a workflow type"),
    ],
)
def test_every_wrong_call_of_limit_and_registry_is_one_line(cli_, args, words):
    """And nothing is changed."""
    assert words in cli_.refused(*args, code=2)


@pytest.mark.spec("CLI-1", "CLI-3")
def test_removing_a_missing_limit_or_entry_is_refused(cli_):
    """It is refused like an unknown run: the call itself is correct."""
    assert "key k has no limit" in cli_.refused("limit", "rm", "--key", "k", code=1)
    assert "has no entry in the registry" in cli_.refused("registry", "rm", TYPE, code=1)


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("limit", "set", "--concurrency", 1, "--type", "shop.oder.v1"), " (did you mean shop.order.v1?)"),
        (("limit", "set", "--concurrency", 1, "--type", "shopp.%"), ""),
        (("registry", "disable", "shop.oder.v1"), " (did you mean shop.order.v1?)"),
        (("registry", "set", "shop.oder"), " (did you mean shop.order?)"),
    ],
)
def test_a_type_that_no_worker_has_published_gives_a_warning(cli_, work, args, hint):
    """A slip would hold nothing back, and nobody would know; it is accepted all the same."""

    async def order(ctx):
        return 1

    work(order=order)
    found = cli_(*args)
    assert found.exit_code == 0
    assert f"warning: no worker has published {args[-1]} in this store{hint}; the " in found.stderr
    for name in (TYPE, "shop.%" if args[0] == "limit" else "shop.order"):
        assert cli_(*args[:-1], name).stderr == ""
    assert cli_("registry", "set", "shop.else.v1", "--runtime", "go").stderr == ""


def test_a_group_without_a_command_lists_its_commands(cli_):
    """It lists them as `holdfast` without a command does."""
    found = cli_("limit")
    assert found.exit_code == 0
    assert {"ls", "set", "rm", "pause", "resume"} <= {
        line.split()[0] for line in found.stdout.splitlines() if line
    }
