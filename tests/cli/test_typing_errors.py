"""Typing errors: numbers that are too large, passwords in the wrong place, names that are too long."""

from __future__ import annotations

import pytest

SECRET = "hunter2"
URL = f"postgresql://ada:{SECRET}@db.example/shop"


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    "args",
    [
        (URL,),
        ("ls", URL),
        ("show", URL),
        ("start", URL),
        ("start", "shop.order.v1", URL),
        ("start", "shop.order.v1", f"pg://a:{SECRET}"),
        ("emit", "paid", URL),
        ("result", URL.upper().replace(SECRET.upper(), SECRET)),
        ("trail", f"postgresql://ada:p@ss {SECRET}@db/shop"),
        ("trail", f"postgresql://db/shop?password={SECRET}&sslmode=require"),
        ("ls", "--limit", URL),
        ("ls", "--status", URL),
        ("schedule", "show", URL),
        ("schedule", "add", "nightly", "shop.order.v1", "--cron", URL),
        ("limit", URL),
        ("worker", URL),
        ("worker", f"json:{URL}"),
        ("ls", f"--sotre={URL}"),
    ],
)
def test_the_password_of_a_url_in_the_wrong_place_is_not_shown(cli_, args):
    cli_("migrate")
    line = cli_.refused(*args, code=_code(args))
    assert SECRET not in line
    assert line.startswith("holdfast: ")


def _code(args):
    return 1 if args[:2] == ("schedule", "show") else 2


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    "url",
    [
        f"mysql://root:{SECRET}@db/shop",
        f"sqlite://ada:{SECRET}@db/shop",
        f"POSTGRESQL://ada:{SECRET}@db/shop",
        f"memory:{SECRET}@db",
        f"//ada:{SECRET}@db",
        f"host=db password={SECRET} dbname=shop",
    ],
)
def test_a_store_of_an_odd_scheme_is_refused_without_its_password(cli_, url):
    for more in ({"env": {"HOLDFAST_STORE": url}}, {"store": False}):
        args = ("ls",) if "env" in more else ("ls", "--store", url)
        assert SECRET not in cli_.refused(*args, code=2, **more)


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize("number", [2**63, 10**30, "9" * 5_000, "-1"])
@pytest.mark.parametrize(
    "args",
    [
        ("trail", "--after"),
        ("trail", "--limit"),
        ("outbox", "ls", "--after"),
        ("outbox", "ls", "--limit"),
        ("ls", "--limit"),
        ("approvals", "--limit"),
        ("limit", "set", "--key", "a", "--concurrency"),
        ("start", "shop.order.v1", "--priority"),
        ("start", "shop.order.v1", "--max-attempts"),
        ("schedule", "add", "nightly", "shop.order.v1", "--every", "1h", "--max-attempts"),
    ],
)
def test_a_number_that_is_too_large_for_a_store_is_one_clear_line(cli_, args, number):
    cli_("migrate")
    line = cli_.refused(*args, number, code=2)
    assert len(line) < 5_000


@pytest.mark.spec("CLI-3")
def test_the_name_of_a_file_that_is_too_long_is_one_clear_line(cli_, tmp_path):
    for name in ("x" * 300, f"{'d' * 300}/runs.db"):
        for command in ("ls", "migrate", "doctor"):
            line = cli_.refused(command, "--store", f"sqlite:///{tmp_path / name}", code=3, store=False)
            assert "File name too long" in line


@pytest.mark.spec("CLI-3")
def test_a_missing_choice_lists_the_choices_in_one_line(cli_):
    cli_("migrate")
    line = cli_.refused("keys", "create", "shop", code=2)
    assert "Choose from: runs.read, payloads.read, runs.write," in line
    assert "\\" not in line
