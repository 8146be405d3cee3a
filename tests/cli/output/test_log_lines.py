"""Log lines of the command line: as text, as JSON, and beside logging that the app sets up itself."""

from __future__ import annotations

import json
import logging
import re
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

import pytest

from holdfast.cli.logs import JsonFormatter, TextFormatter, show_logs
from holdfast.engine.log_context import LogContext
from holdfast.escaping import safe_logger
from tests.cli.output import hostile

pytestmark = pytest.mark.spec("OPS-6")

RUN = "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10"
COLOURS = re.compile(r"\x1b\[\d+m")
OF_A_STEP = {
    "run": RUN,
    "type": "shop.order.v1",
    "step": "charge",
    "attempt": 2,
    "tenant": "ann",
    "worker": "w1",
}


def record(message, *args, name="shop", level=logging.INFO, error=None, **fields):
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, level, "shop.py", 1, message, args, info)
    made.__dict__.update(fields)
    assert LogContext().filter(made)
    return made


def as_text(one):
    return COLOURS.sub("", TextFormatter(with_date=False).format(one))


def as_json(one):
    text = JsonFormatter().format(one)
    assert text.isprintable()
    return json.loads(text)


def raised(error):
    with pytest.raises(type(error)) as found:
        raise error
    return found.value


def test_a_line_of_user_code_has_time_level_run_step_attempt_and_logger():
    time, rest = as_text(record("charging %s", 42, **OF_A_STEP)).split("  ", 1)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time)
    assert rest == "info     5d0c8f10  [charge #2] shop: charging 42"
    _, rest = as_text(record("begins", **OF_A_STEP | {"step": "", "attempt": 1}, name="root")).split("  ", 1)
    assert rest == "info     5d0c8f10  [#1] begins"
    _, rest = as_text(record("outside")).split("  ", 1)
    assert rest == "info               shop: outside"


def test_an_id_in_a_message_of_user_code_stays():
    other = "aaaaaaaa-7a31-7c3e-b1de-4b9a5d0c8f10"
    assert as_text(record("refund of %s", other, **OF_A_STEP)).endswith(f"refund of {other}")


def test_json_has_one_object_a_line_with_the_fields_that_are_known():
    found = as_json(record("charging %s", 42, **OF_A_STEP))
    at = datetime.fromisoformat(found.pop("time"))
    assert at.utcoffset().total_seconds() == 0
    assert found == {"level": "info", "logger": "shop", "message": "charging 42", **OF_A_STEP}
    assert set(as_json(record("outside"))) == {"time", "level", "logger", "message"}


def test_json_of_a_failed_run_has_the_fields_of_its_error():
    error = {
        "error_kind": "exhausted",
        "error_type": "ValueError",
        "error_message": "no",
        "error_at": "a.py:1",
    }
    found = as_json(record("failed", name="holdfast.run", level=logging.ERROR, **OF_A_STEP, **error))
    assert found.items() >= error.items()
    assert found["run"] == RUN


def test_an_exception_of_user_code_is_shown_with_its_traceback():
    one = record("oh no", error=raised(ValueError("no card")), level=logging.ERROR, **OF_A_STEP)
    first, *rest = as_text(one).splitlines()
    assert first.endswith("[charge #2] shop: oh no")
    assert all(line.startswith("  ") for line in rest)
    assert rest[-1] == "  ValueError: no card"
    found = as_json(one)
    assert (found["error_type"], found["error_message"]) == ("ValueError", "no card")
    assert found["traceback"].startswith("Traceback (most recent call last):\n")


@pytest.mark.parametrize("name", ["shop", "holdfast.run"])
def test_hostile_text_steers_no_terminal_and_forges_no_line(name):
    text = hostile.TEXT
    fields = {**OF_A_STEP, "step": text, "type": text, "tenant": text}
    for one in (
        record("said %s", text, name=name, **fields),
        record(text.replace("%", ""), name=name, **fields),
        record("oh", error=raised(ValueError(text)), name=name, **fields),
    ):
        first, *rest = as_text(one).split("\n")
        assert all(line.isprintable() for line in (first, *rest))
        assert all(line.startswith("  ") for line in rest)
        assert as_json(one)["level"] == "info"


def test_half_a_surrogate_pair_is_no_reason_to_lose_a_line():
    found = as_json(record("half \ud800 %s", "\ud800", **OF_A_STEP | {"step": "\ud800"}))
    assert found["message"] == "half ? ?"


def test_a_long_message_is_cut_and_says_so():
    assert as_text(record("x" * 100_000)).endswith("x… (100,000 characters)")
    assert as_json(record("x" * 100_000))["message"].endswith("x… (100,000 characters)")


def test_the_run_of_our_own_lines_is_a_field(caplog):
    safe_logger("holdfast.test").warning("run %s is odd", UUID(RUN))
    (one,) = caplog.records
    assert one.run == RUN
    assert as_text(one).endswith("warning  5d0c8f10  is odd")


@contextmanager
def bare():
    """Make the root logger and ours as in a new process."""
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    before = [(one, one.handlers[:], one.level, one.propagate) for one in (root, ours)]
    root.handlers, ours.handlers = [], []
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.NOTSET)
    try:
        yield root
    finally:
        for one, handlers, level, propagate in before:
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(level)


def test_info_of_user_code_is_shown_and_debug_on_demand(capsys):
    with bare():
        show_logs()
        logging.getLogger("shop").info("shown")
        logging.getLogger("shop").debug("hidden")
        assert [line.split("shop: ")[1] for line in capsys.readouterr().err.splitlines()] == ["shown"]
        show_logs("debug", "text")
        logging.getLogger("shop").debug("shown now")
        assert capsys.readouterr().err.count("shown now") == 1
        show_logs("error", "json")
        logging.getLogger("shop").warning("hidden")
        logging.getLogger("shop").error("shown")
        out, err = capsys.readouterr()
        assert (json.loads(out)["message"], err) == ("shown", "")


def test_logging_that_the_app_sets_up_stays(capsys):
    with bare() as root:
        mine = logging.StreamHandler()
        mine.setFormatter(logging.Formatter("mine %(message)s"))
        root.addHandler(mine)
        assert show_logs() is None
        logging.getLogger("holdfast").info("started")
        logging.getLogger("shop").info("of a level that the app has not asked for")
        assert capsys.readouterr().err == "mine started\n"
        assert root.handlers == [mine]
        show_logs("info")
        logging.getLogger("shop").info("asked for")
        assert capsys.readouterr().err == "mine asked for\n"
        show_logs(None, "json")
        logging.getLogger("shop").info("as JSON")
        out, err = capsys.readouterr()
        assert (json.loads(out)["message"], err) == ("as JSON", "")


def test_a_wrong_call_of_user_code_does_not_stop_the_worker(capsys):
    with bare():
        show_logs()
        logging.getLogger("shop").info("%d", "no number")
        logging.getLogger("shop").info("next")
        assert "next" in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_prints_json_for_a_pipe(process, url, cli_, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    run = cli_.start("shop.order.v1", '"4111 1111"')
    worker = process("--store", url, "worker", "shop:app", "--log-format", "json", "--grace", "0s")
    lines = []
    for line in worker.stdout:
        lines.append(json.loads(line))
        if lines[-1]["level"] == "error":
            break
    worker.terminate()
    assert worker.wait(30) == 0
    ours = [one for one in lines if one.get("run") == run]
    said = [(one["level"], one.get("step", ""), one["attempt"], one["message"][:8]) for one in ours]
    assert said == [
        ("info", "", 1, "begins"),
        ("info", "charge", 1, "charging"),
        ("warning", "charge", 1, "shop.ord"),
        ("info", "charge", 2, "charging"),
        ("error", "charge", 2, "shop.ord"),
    ]
    assert ours[-1]["error_at"] == "shop.py:9 in charge"
    assert "4111 1111" not in json.dumps(lines)


@pytest.mark.slow
def test_dev_tells_each_failure_once_with_its_place(process, url, cli_, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    cli_.start("shop.order.v1", '"4111 1111"')
    worker = process("--store", url, "dev", "shop:app")
    lines = []
    for line in worker.stderr:
        lines.append(line)
        if "(exhausted)" in line:
            break
    worker.terminate()
    lines += worker.stderr.readlines()
    worker.wait(30)
    failures = [line for line in lines if "ValueError" in line]
    assert len(failures) == 3  # the retry, the step, the run
    assert all("shop.py:9 in charge" in line for line in failures)
    assert any("[charge #2] shop: charging" in line for line in lines)


SHOP = """
import logging
from holdfast import App, Backoff
app = App()
log = logging.getLogger("shop")

async def charge(card):
    log.info("charging")
    raise ValueError("declined")

@app.workflow("shop.order.v1")
async def order(ctx, card: str):
    log.info("begins")
    await ctx.step("charge", charge, card, retry=Backoff.fixed(0.01, attempts=2))
"""
