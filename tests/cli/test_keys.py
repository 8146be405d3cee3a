"""`holdfast keys` and `holdfast audit`, as a person types them."""

from __future__ import annotations

import asyncio
import json
import re
from uuid import UUID

import pytest

from holdfast import api_keys
from holdfast.records import NewRun, moment
from holdfast.stores.sqlite import SqliteStore

SECRET = re.compile(r"hf_[a-z0-9]{12}_[A-Za-z0-9]{32}")


@pytest.fixture(autouse=True)
def _a_store(cli_):
    cli_.start("shop.order.v1")


def said(cli_, *args):
    found = cli_(*args)
    assert found.exit_code == 0, found.stderr
    return found.stdout.strip()


def rows(cli_, *args):
    return [json.loads(line) for line in cli_(*args, "--json").stdout.splitlines()]


def is_let_in(cli_, text):
    async def looked():
        store = SqliteStore(cli_.url.removeprefix("sqlite:///"))
        await store.open()
        try:
            id_, secret = api_keys.parse(text)
            key = await store.find_key(id_)
            return api_keys.matches_hash(key, api_keys.secret_hash(secret), moment(await store.now()))
        finally:
            await store.close()

    return asyncio.run(looked())


@pytest.mark.spec("TEN-1", "CLI-1")
def test_a_key_is_created_and_its_secret_printed_once(cli_):
    made = cli_(
        "keys", "create", "ci", "--tenant", "acme", "--scope", "work", "--scope", "runs.read", "--pattern",
        "shop.%", "--expires", "90d", "--rate", "5", "--open-runs-max", "100", "--by", "eve",
    )  # fmt: skip
    first, second = made.stdout.splitlines()
    (secret,) = SECRET.findall(second)
    id_ = secret.split("_")[1]
    assert first == f"API key ci ({id_}) of tenant acme is created: work, runs.read (only shop.%)"
    assert second == f"secret (shown only now, keep it safe): {secret}"
    assert made.stderr == ""
    assert is_let_in(cli_, secret)
    listed = said(cli_, "keys", "ls")
    assert listed.splitlines()[1].split()[:4] == [id_, "ci", "acme", "live,"]
    assert "expires in 90 d" in listed
    assert secret not in listed + json.dumps(rows(cli_, "keys", "ls")) + json.dumps(rows(cli_, "audit"))
    (key,) = rows(cli_, "keys", "ls", "--tenant", "acme")
    assert (key["rate"], key["open_runs_max"], key["created_by"]) == (5.0, 100, "eve")
    assert "secret_hash" not in key
    assert cli_("keys", "ls", "--tenant", "beta").stderr.startswith("no API keys; ")


@pytest.mark.spec("TEN-1", "CLI-1")
def test_the_signing_key_of_a_store_is_rotated_and_never_shown(cli_):
    assert "has a new signing key" in said(cli_, "keys", "rotate-signing-key")
    assert list(cli_.json("keys", "rotate-signing-key")) == ["created_at"]


@pytest.mark.spec("TEN-1")
def test_a_key_is_rotated_and_revoked(cli_):
    made = cli_.json("keys", "create", "ci", "--scope", "work")
    id_ = made["key"]["id"]
    new = said(cli_, "keys", "rotate", id_, "--overlap", "1h").splitlines()
    assert new[0] == f"API key ci ({id_}) has a new secret; the old one is valid for 60 min"
    (second,) = SECRET.findall(new[1])
    assert [is_let_in(cli_, one) for one in (made["secret"], second)] == [True, True]
    third = cli_.json("keys", "rotate", id_, "--overlap", "0")["secret"]
    assert [is_let_in(cli_, one) for one in (made["secret"], second, third)] == [False, False, True]
    assert "valid for 24 h" in said(cli_, "keys", "rotate", id_)
    assert said(cli_, "keys", "revoke", id_) == f"API key ci ({id_}) is revoked"
    assert cli_.json("keys", "revoke", id_)["revoked_at"] is not None
    assert "revoked" in said(cli_, "keys", "ls").splitlines()[1]
    refused = cli_("keys", "rotate", id_)
    assert (refused.exit_code, "is revoked, for good" in refused.stderr) == (1, True)
    unknown = cli_("keys", "revoke", "k99999999999")
    assert (unknown.exit_code, "there is no API key k99999999999" in unknown.stderr) == (1, True)


@pytest.mark.spec("TEN-1", "CLI-1")
def test_the_audit_log_is_listed_newest_first(cli_):
    for name in ("a", "b", "c"):
        cli_.json("keys", "create", name, "--scope", "work", "--tenant", f"t{name}", "--by", "eve")
    lines = said(cli_, "audit").splitlines()
    assert lines[0].split() == ["TIME", "TENANT", "WHO", "ACTION", "OUTCOME", "TARGET"]
    assert [line.split()[2:6] for line in lines[1:]] == [
        [f"t{name}", "eve", "create_key", "done"] for name in "cba"
    ]
    page = cli_("audit", "--limit", "2")
    last = rows(cli_, "audit", "--limit", "2")[-1]["seq"]
    assert page.stderr == f"there may be more: holdfast audit --limit 2 --after {last}\n"
    assert [row["tenant"] for row in rows(cli_, "audit", "--after", last)] == ["ta"]
    assert [row["tenant"] for row in rows(cli_, "audit", "--tenant", "tb")] == ["tb"]
    assert rows(cli_, "audit", "--action", "revoke_key") == rows(cli_, "audit", "--key", "x") == []
    assert cli_("audit", "--tenant", "nobody").stderr == "the audit log is empty\n"


@pytest.mark.spec("TEN-1", "CLI-1")
def test_keys_are_listed_in_pages(cli_):
    for n in range(3):
        cli_.json("keys", "create", f"k{n}", "--scope", "work")
    page = cli_("keys", "ls", "--limit", "2")
    ids = [row["id"] for row in rows(cli_, "keys", "ls")]
    assert page.stderr == f"there may be more: holdfast keys ls --limit 2 --after {ids[1]}\n"
    assert [row["id"] for row in rows(cli_, "keys", "ls", "--after", ids[1])] == ids[2:]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["create", "ci"], "missing option '--scope'"),
        (["create", "ci", "--scope", "all"], "'all' is not one of"),
        (["create", "ci", "--scope", "work", "--rate", "0"], "'--rate'"),
        (["create", "ci", "--scope", "work", "--open-runs-max", "0"], "'--open-runs-max'"),
        (["create", "ci", "--scope", "work", "--expires", "soon"], "is not a duration"),
        (["create", "ci", "--scope", "work", "--expires", "0s"], "has passed"),
        (["create", "ci", "--scope", "work", "--pattern", "%x"], "% is allowed only at the end"),
        (["create", "", "--scope", "work"], "1 to 255 characters"),
        (["revoke", "x"], "is not the id of an API key"),
        (["rotate", "k00000000001", "--overlap", "-1"], "duration"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(cli_, args, why):
    found = cli_("keys", *args)
    assert (found.exit_code, found.stdout) == (2, "")
    assert why in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_a_whole_key_in_place_of_an_id_is_not_repeated(cli_):
    """Errors end up in logs."""
    made = cli_.json("keys", "create", "ci", "--scope", "work")
    found = cli_("keys", "revoke", made["secret"])
    assert found.exit_code == 2
    assert made["secret"].split("_")[2] not in found.stderr + found.stdout


@pytest.mark.spec("TRAIL-1", "CLI-1")
def test_the_trail_says_who_has_started_a_run(cli_):
    async def started():
        store = SqliteStore(cli_.url.removeprefix("sqlite:///"))
        await store.open()
        run = UUID("0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10")
        await store.start([NewRun(id=run, type="shop.order.v1", by="importer\x1b[31m")])
        await store.close()
        return run

    said_ = said(cli_, "trail", asyncio.run(started()))
    assert "started as shop.order.v1 by importer" in said_
    assert "\x1b" not in said_
