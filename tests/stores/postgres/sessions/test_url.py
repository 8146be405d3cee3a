"""A URL of Postgres, wherever a store is named: in code, on the command line, in the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from holdfast.errors import UsageError
from holdfast.stores import make_store, shown
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.address import parsed

SECRET = "postgresql://me:hunter2@db:5433/orders?schema=flow&password=hunter2"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_both_schemes_name_a_store_in_postgres(scheme):
    store = make_store(f"{scheme}://me@db/orders?schema=flow&listen=off")
    assert isinstance(store, PostgresStore)
    assert (store.address.schema, store.address.listen) == ("flow", False)


def test_without_the_driver_it_is_said_how_to_get_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("holdfast.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(UsageError, match=r"pip install asyncpg"):
        make_store("postgresql://db/orders")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://db/orders?schema=Flow", "schema 'Flow' of the store URL: write lower-case"),
        ("postgresql://db/orders?schema=a;drop", "schema 'a;drop'"),
        ("postgresql://db/orders?listen=maybe", "write listen=on or listen=off"),
        ("postgresql://[db/orders", "the store URL cannot be read"),
        ("postgresql://me:hunter2@db:hunter2/orders", "the port as a number"),
        ("postgresql://db:70000/orders", "the port as a number"),
        ("postgresql://a:1,b:x/orders", "the port as a number"),
        ("postgresql://me:hun/hunter2@db/orders", "%2F for /"),
        ("postgresql://me:1/hunter2@db/orders", "%2F for /"),
        ("postgresql://me:1#hunter2@db/orders", "%23 for #"),
        ("postgresql://me:[hunter2]@db/orders", "%5B for ["),
        ("postgresql://me:hunter2\N{FULLWIDTH COLON}@db/orders", "the store URL cannot be read"),
        ("postgresql://me:1?hunter2@db/orders", "%3F for ?"),
        ("postgresql:/me:hunter2@db/orders", "'postgresql:…@db/orders' is not known"),
        ("postgres:me:hunter2@db/orders", "is not known"),
        ("host=db user=me password=hunter2", "store URL '…' is not known"),
        ("mysql://db/orders?password=hunter2", "store URL 'mysql://…' is not known"),
        ("postgresql://db/orders?target_session_attrs=standby", "write one of any, primary, read-write"),
        ("postgresql://me:hun@hunter2@db/orders", "%40 for @"),
        ("postgresql://me:hunter2@db/orders?target_session_attrs=master", "write one of any, primary"),
        (
            "mysql://me:hunter2@db/orders",
            "postgresql://user:password@host/database, redis://host:6379/0, memory://, or https://",
        ),
    ],
)
def test_a_url_that_is_wrong_is_refused_without_its_password(url, said):
    with pytest.raises(UsageError) as caught:
        make_store(url)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (SECRET, "postgresql://me@db:5433/orders"),
        ("postgresql:///orders", "postgresql:///orders"),
        ("postgresql://me@/orders?host=/run/pg", "postgresql://me@/orders?host=/run/pg"),
        ("postgresql:///?host=/run/pg&dbname=orders&user=me", "postgresql://me@/orders?host=/run/pg"),
        ("postgresql://a:1,b:2/orders?user=me", "postgresql://me@a:1,b:2/orders"),
        ("postgresql://me:hunter%402@[::1]:5433/orders", "postgresql://me@[::1]:5433/orders"),
    ],
)
def test_what_is_shown_of_an_address_holds_no_password(url, expected):
    assert parsed(url).shown == expected
    assert "hunter2" not in shown(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (SECRET, "postgresql://me:HERE@db:5433/orders?schema=flow&password=HERE"),
        ("postgresql://me@db/orders?schema=flow", "postgresql://me@db/orders?schema=flow"),
        ("postgresql:///orders", "postgresql:///orders"),
        ("sqlite:////tmp/a:b@c.db", "sqlite:////tmp/a:b@c.db"),
    ],
)
def test_a_word_stands_where_a_password_was_and_nowhere_else(url, expected):
    assert shown(url, "HERE") == expected


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@db/orders",
        "postgresql://me@db/orders?schema=flow",
        "postgresql://me@/orders?host=/run/pg&schema=flow&listen=off&allow_fsync_off=on",
        "postgresql://me@/orders?host=/run/pg&port=5433",
        "postgresql://me@a,b/orders?target_session_attrs=primary&sslmode=verify-full&schema=flow",
    ],
)
def test_what_a_person_is_told_to_type_names_the_same_store(url):
    assert parsed(url).typed == url
    assert parsed(url.replace("me@", "me:hunter2@")).typed == url


def test_a_slash_at_the_end_is_no_part_of_the_name():
    assert parsed("postgresql://me@db/orders/") == parsed("postgresql://me@db/orders")
    assert parsed("postgresql://me@db/").dsn == "postgresql://me@db"


def test_what_is_ours_in_the_url_does_not_reach_the_driver():
    address = parsed(SECRET + "&allow_fsync_off=1&sslmode=require")
    assert address.dsn == "postgresql://me:hunter2@db:5433/orders?password=hunter2&sslmode=require"
    assert address.allow_fsync_off


def holdfast(*args, store=None):
    env = {**os.environ, **({"HOLDFAST_STORE": store} if store else {})}
    command = [sys.executable, "-m", "holdfast.cli", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=env)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_commands_work_with_it(postgres_database):
    """The store is made by `migrate`, and only by commands that begin something."""
    url = postgres_database.url
    code, _, said = holdfast("ls", "--store", url)
    assert code == 3
    assert "there is no store in schema workflow" in said
    code, told, _ = holdfast("migrate", "--json", store=url.replace("postgres@", "postgres:hunter2@"))
    assert code == 0
    assert json.loads(told) == {"store": shown(url), "current": True}
    code, told, said = holdfast("start", "shop.order.v1", "{}", "--json", store=url)
    assert (code, json.loads(told)["created"]) == (0, True), said
    code, told, _ = holdfast("ls", store=url)
    assert code == 0
    assert "shop.order.v1" in told


def test_a_server_that_is_away_is_exit_code_3_and_one_line():
    code, told, said = holdfast("ls", "--store", "postgresql://me:hunter2@127.0.0.1:1/orders")
    assert (code, told) == (3, "")
    assert said.strip().count("\n") == 0
    assert "is the server running" in said
    assert "hunter2" not in said
