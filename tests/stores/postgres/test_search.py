"""Search on Postgres: the forms of a text, values that other programs wrote, and the cost of one call."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import UsageError
from holdfast.records import ANY, RunFilter
from holdfast.searching import json_forms
from holdfast.testing.contract.driver import Clock, StoreDriver
from tests.stores.postgres import kit

START = "insert into workflow.workflow_run (type, payload) values ('shop.order.v1', %s) returning id"
TEXTS = [
    "plain", 'a "b" \\ /', "\x01\x08\x0c\n\r\t\x1f", "\x7f", "é", "\x80\xff", "\u2028\u2029", "日本",
    "👍🏽 \U0010ffff", "\ufeff", "".join(map(chr, range(1, 200))),
]  # fmt: skip


@pytest.fixture
def driver(tmp_path):
    clock = Clock()
    driver = StoreDriver(kit.make(clock, tmp_path), clock)
    yield driver
    driver.close()


def found(driver, text, **where):
    answer = driver.run(driver.store.search(text, RunFilter(tenant=ANY, **where)))
    assert answer.after is None
    return [run.id for run in answer.runs]


@pytest.mark.spec("READ-2")
@pytest.mark.parametrize("text", TEXTS, ids=lambda one: ascii(one)[:20])
def test_the_forms_of_a_text_are_those_of_the_codec(driver, text):
    _, sql = kit.database()
    (forms,) = sql.execute("select workflow.json_forms(%s)", (text,)).fetchone()
    assert forms == [*dict.fromkeys(json_forms(text))]


@pytest.mark.spec("READ-2")
def test_values_of_user_sql_are_found(driver):
    """With blanks between, and in the escapes of another library; not in escapes of an unusual kind."""
    _, sql = kit.database()
    texts = (
        json.dumps({"name": "Zoé 👍", "at": "a/b"}),
        json.dumps({"name": "Zoé 👍"}, ensure_ascii=False, indent=2),
        r'{"name": "Zo\u00E9", "at": "a\/b"}',
    )
    first, second, _ = (sql.execute(START, (text,)).fetchone()[0] for text in texts)
    assert sorted(found(driver, "Zoé")) == sorted(found(driver, "é 👍")) == sorted([first, second])
    assert found(driver, "a/b") == [first]


@pytest.mark.spec("READ-2")
def test_an_error_that_postgres_cannot_read_does_not_stop_a_search(driver):
    claim = driver.held()
    driver.fail(claim, last_error="odd line")
    _, sql = kit.database()
    with sql.transaction():
        sql.execute("set local session_replication_role = replica")
        sql.execute(
            "update workflow.workflow_run set error = %s where id = %s",
            (r'{"message":"blue \u0000"}', claim.id),
        )
    assert found(driver, "blue") == []
    assert found(driver, "odd line") == [claim.id]


@pytest.mark.spec("READ-2")
@pytest.mark.parametrize("text", ["", "x" * 201, None], ids=ascii)
def test_the_function_refuses_other_texts_itself(driver, text):
    """A caller in SQL is told the same."""
    with pytest.raises(UsageError, match="1 to 200 characters"):
        driver.run(driver.store._call("search", text, "{}", 10, None))
