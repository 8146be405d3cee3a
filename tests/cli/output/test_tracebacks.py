"""Tracebacks in `show`: the user's frames first, libraries folded, cuts marked, all of it with --full."""

from __future__ import annotations

import json

import pytest

from holdfast import Backoff, Fatal, StepFailed
from holdfast.engine.failures import error_of
from holdfast.engine.tracebacks import TRACEBACK_MAX, bounded, frame_of, user_frame
from holdfast.records import Error
from holdfast.shown.tracebacks import LINES_MAX, trace_lines

pytestmark = pytest.mark.spec("OPS-6")

LAST = "ValueError: no card"
HEAD = "Traceback (most recent call last):"
PACKAGES = "/venv/lib/python3.12/site-packages"
OURS = f'  File "{PACKAGES}/holdfast/engine/code/steps.py", line 9, in _tries\n    await x\n'
MINE = '  File "/home/ada/shop.py", line 9, in charge\n    raise ValueError\n          ^^^^^\n'
HTTPX = f'  File "{PACKAGES}/httpx/_client.py", line 7, in get\n    return x\n'
PYTHON = '  File "/usr/lib/python3.12/asyncio/tasks.py", line 7, in wait_for\n    return x\n'


def shown(*parts, message=LAST):
    return trace_lines(f"{HEAD}\n{''.join(parts)}{message}\n")


def test_the_users_frames_come_first_and_ours_are_counted():
    assert shown(OURS, OURS, MINE) == [
        "Traceback (most recent call last, after 2 frames of holdfast):",
        *MINE.splitlines(),
        LAST,
    ]
    assert shown(MINE) == [HEAD, *MINE.splitlines(), LAST]
    assert shown(MINE, OURS, OURS) == [
        HEAD,
        *MINE.splitlines(),
        "  … 2 frames of holdfast",
        LAST,
    ]
    assert trace_lines("") == []


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("backoff.py", "holdfast"),
        ("step_keys.py", "holdfast"),
        ("engine/code/steps.py", "holdfast"),
        ("cli/demo/shop.py", ""),
        ("testing/rehearsal.py", ""),
    ],
)
@pytest.mark.parametrize("folder", [PACKAGES, "/home/ada/src"])
def test_frames_of_the_package_are_ours_but_for_its_demo_and_its_testing_kit(folder, file, library):
    assert frame_of(f'  File "{folder}/holdfast/{file}", line 9, in work').library == library


def test_frames_of_other_libraries_are_folded_but_for_the_one_that_raised():
    assert shown(MINE, HTTPX, HTTPX, PYTHON, HTTPX) == [
        HEAD,
        *MINE.splitlines(),
        "  … 2 frames of httpx, 1 of Python",
        *HTTPX.splitlines(),
        LAST,
    ]


def test_frames_in_exception_groups_are_folded_too():
    error = ExceptionGroup("both", [_raised(ValueError("a")), _raised(KeyError("b"))])
    text = error_of(error, "error").traceback.replace(__file__, OURS.split('"')[1])
    lines = trace_lines(text)
    assert sum("frame of holdfast" in line for line in lines) == 2
    assert not any("File " in line for line in lines)


def test_a_repeated_line_is_folded_with_its_frame():
    repeated = OURS + "  [Previous line repeated 900 more times]\n"
    assert shown(MINE, repeated) == [
        HEAD,
        *MINE.splitlines(),
        "  … 1 frame of holdfast",
        LAST,
    ]


def test_a_long_traceback_is_cut_in_the_middle_and_says_so():
    lines = shown(*[MINE.replace("charge", f"f{n}") for n in range(100)])
    assert len(lines) == LINES_MAX + 1
    assert lines[LINES_MAX // 2] == "… 262 lines left out; --full shows all …"
    assert "in f0" in lines[1]
    assert lines[-1] == LAST


def test_a_recorded_traceback_keeps_its_beginning_and_its_end():
    """The user's code is near the beginning, the message at the end."""
    depth = 500
    lines = [f"def f{n}(): f{n + 1}()" for n in range(depth)]
    source = "\n".join([*lines, f"def f{depth}(): raise KeyError('x')"])
    names: dict[str, object] = {}
    exec(compile(source, "/home/ada/deep.py", "exec"), names)
    with pytest.raises(KeyError) as found:
        names["f0"]()
    trace = error_of(found.value, "error").traceback
    assert len(trace) <= TRACEBACK_MAX
    assert "in f0" in trace
    assert "characters are left out …\n" in trace
    assert trace.endswith("KeyError: 'x'\n")
    assert all(frame_of(line) for line in trace.splitlines() if line.lstrip().startswith("File"))


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "x\n" * 100_000, "x" * 90_000 + "\n" + "y" * 20_000, "\0" * 50_000]
)
def test_a_cut_is_within_its_bound_whatever_the_text_is(text):
    assert len(bounded(text)) <= TRACEBACK_MAX
    assert bounded(text).endswith(text[-100:])
    assert len(error_of(ValueError(text), "error").traceback) <= TRACEBACK_MAX


def test_the_users_last_frame_is_found():
    text = f"{HEAD}\n{OURS}{MINE}{HTTPX}ValueError: no\n"
    frame = user_frame(Error(kind="error", traceback=text))
    assert str(frame) == "/home/ada/shop.py:9 in charge"
    assert user_frame(Error(kind="error", traceback=f"{HEAD}\n{OURS}ValueError: no\n")) is None
    assert user_frame(Error(kind="error")) is None


async def fails(ctx):
    async def boom():
        raise ValueError("no card")

    await ctx.step("boom", boom, retry=Backoff.none())


async def told(ctx):
    try:
        await fails(ctx)
    except StepFailed as error:
        raise Fatal("no order") from error


def test_show_has_the_place_in_users_code_and_everything_with_full(cli_, work):
    run = cli_.start("shop.fails.v1")
    work(fails=fails)
    out = cli_("show", run).stdout
    assert "    Traceback (most recent call last, after 1 frame of holdfast):\n" in out
    assert out.count("in boom") == 1
    assert "steps.py" not in out
    full = cli_("show", run, "--full").stdout
    assert "steps.py" in full
    assert "The step failed with that, and the workflow was told:" in full
    assert "in fails" in full


def test_show_has_both_places_when_the_workflow_raises_another_exception(cli_, work):
    run = cli_.start("shop.told.v1")
    work(told=told)
    out = cli_("show", run).stdout
    assert "in boom" in out
    assert "in told" in out
    assert "steps.py" not in out


def test_errors_of_runs_and_steps_have_one_shape(cli_, work):
    run = cli_.start("shop.fails.v1")
    work(fails=fails)
    found = cli_.json("show", run)
    (step,) = found["steps"]
    fields = {"kind", "type", "message", "traceback", "step", "attempt", "max_attempts", "since", "args"}
    assert set(found["error"]) == set(step["error"]) == fields
    assert (step["error"]["type"], step["error"]["message"]) == ("ValueError", "no card")
    assert json.dumps(found["error"]["args"]) == "null"


def _raised(error):
    with pytest.raises(type(error)) as found:
        raise error
    return found.value
