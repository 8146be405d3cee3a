"""Search of a text in the values of runs: what is found, and that each call has its bounds."""

from __future__ import annotations

import json
from unittest.mock import patch

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, NewRun, RunFilter
from holdfast.searching import SEARCHED_MAX

from .driver import TYPE, noise
from .test_filters import failed, labels

OTHER = "shop.other.v1"  # a type that the driver does not claim


def search(driver, text, limit=100, after=None, **where):
    return driver.run(driver.store.search(text, RunFilter(**where), limit, after))


def ids(driver, text, **fields):
    """Return the runs of one call, which reaches the end."""
    found = search(driver, text, **fields)
    assert found.after is None
    return [run.id for run in found.runs]


def every(driver, text, **fields):
    """Call until the end; return the runs, how many were looked at, and the number of calls."""
    runs, looked_at, calls, after = [], 0, 0, None
    while calls == 0 or after is not None:
        found = search(driver, text, after=after, **fields)
        assert after is None or found.after is None or found.after < after
        runs += [run.id for run in found.runs]
        looked_at, calls, after = looked_at + found.looked_at, calls + 1, found.after
    assert runs == sorted(set(runs), reverse=True)
    return runs, looked_at, calls


def value(data):
    return msgspec.json.encode(data).decode()


@pytest.mark.spec("READ-2")
def test_a_text_is_found_in_params_result_labels_key_and_error(driver):
    """In the names and the values of labels; in keys without the tenant that stores put before them."""
    params = driver.start(params=value({"note": ["left at the blue door"]}))
    named = driver.start(labels=labels(**{"blue door": "x"}))
    valued = driver.start(labels=labels(place="the blue door"))
    keyed = driver.start(key="blue door 7")
    other = driver.start(key="blue door 7", tenant="acme")
    driver.start(params=value("red door"), key="7", labels=labels(a="door"), tenant="blue door")
    claims = {claim.id: claim for claim in driver.claim()}
    driver.complete(claims[params])
    assert driver.get(params).result_json == '"done"'
    ended = driver.held()
    driver.complete(ended, result=value({"at": "blue door"}))
    wrong = failed(driver, message="x" * 600 + " blue door")
    found = search(driver, "blue door", tenant=ANY)
    assert [run.id for run in found.runs] == [wrong, ended.id, other, keyed, valued, named, params]
    assert (found.after, found.looked_at) == (None, 8)
    assert found.runs[1].result == {"at": "blue door"}
    assert ids(driver, "blue door", tenant="acme") == [other]
    assert ids(driver, "fatal: xx") == [wrong]  # last_error
    assert ids(driver, "message") == ids(driver, "acme", tenant=ANY) == []


@pytest.mark.spec("READ-2")
@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("100%", ["1000", "100 "]), ("a_b", ["axb"]), ("%", ["x"]), ("_", ["x"]), ("*", ["x"]),
        ('a "b" é', ["a b é"]), ("C:\\new", ["C:\new"]), ("it's", ["its"]), ("a/b", ["a\\/b"]), ("\\", ["/"]),
        ("line\nbreak", ["line break"]), ("tab\t\x01\x1f\x7f", ["tab"]), ("Straße", ["strasse", "STRASSE"]),
        ("Blue", ["blue", "BLUE"]), ("é", ["e", "É"]), ("日本", ["日", "本日"]), ("👍🏽", ["👍"]),
        ("\u2028", ["\n"]), ("[a-z]", ["a"]), ("$1", ["1"]), ("'; --", ["x"]),
        ("x" * SEARCHED_MAX, ["x" * (SEARCHED_MAX - 1)]),
    ],
    ids=lambda one: ascii(one)[:20],
)  # fmt: skip
def test_a_text_is_literal_and_case_counts(driver, text, others):
    """As people type it: nothing is a wildcard, and JSON escapes are not seen."""
    inside = f"before {text} after"
    runs = [
        driver.start(OTHER, params=value({"note": [inside]})),
        driver.start(OTHER, params=value({inside: 1})),
        driver.start(OTHER, params=json.dumps(inside)),  # in ASCII, as other libraries write it
        driver.start(OTHER, labels=labels(note=inside)),
        failed(driver, message=inside),
    ]
    for other in others:
        driver.start(OTHER, params=value(other), labels=labels(a=other))
        failed(driver, message=other)
    assert ids(driver, text) == runs[::-1]


@pytest.mark.spec("READ-2")
def test_a_number_is_found_and_text_over_the_quotes_of_json_is_not(driver):
    run = driver.start(params='{"order":4711,"n":[1,2],"a":true}')
    assert ids(driver, "4711") == ids(driver, "711") == ids(driver, "[1,2]") == ids(driver, "true") == [run]
    assert ids(driver, '"order":4711') == []


@pytest.mark.spec("READ-2")
def test_a_search_goes_with_all_filters(driver):
    """Deleted runs only if asked for; without values the runs are found and shown without them."""
    runs = [driver.start(params='"blue"', labels=labels(n=str(n % 2))) for n in range(4)]
    kid = driver.start(params='"blue"', parent=runs[0], labels=labels(n="1"))
    driver.start(params='"red"', labels=labels(n="1"))
    other = driver.start(type=OTHER, params='"blue"')
    driver.cancel(runs[1])
    driver.delete(runs[3])
    assert ids(driver, "blue") == [other, kid, runs[2], runs[1], runs[0]]
    assert ids(driver, "blue", deleted=True) == [other, kid, *runs[::-1]]
    assert ids(driver, "blue", labels={"n": "1"}) == [kid, runs[1]]
    assert ids(driver, "blue", labels={"n": "1"}, roots=True) == [runs[1]]
    assert ids(driver, "blue", statuses=(Status.CANCELLED,)) == [runs[1]]
    assert ids(driver, "blue", type="shop.other%") == ids(driver, "blue", after=None, type=OTHER) == [other]
    assert ids(driver, "blue", parent=runs[0]) == [kid]
    assert ids(driver, "blue", after=kid) == [runs[2], runs[1], runs[0]]
    assert ids(driver, "blue", key="none") == ids(driver, "blue", tenant="acme") == []
    (bare,) = search(driver, "blue", parent=runs[0], values=False).runs
    assert (bare.id, bare.params_json, bare.result_json) == (kid, "null", None)
    assert search(driver, "blue", parent=runs[0]).runs[0].params == "blue"


@pytest.mark.spec("READ-2")
def test_one_call_looks_at_a_bounded_number_of_runs(driver):
    """It may find nothing, and says where to go on. A run that does not match the filter does not count."""
    blue = [driver.start(params='"blue"'), driver.start(params='"blue"')]
    driver.start_many([NewRun(id=driver.id(), type=TYPE, params='"red"') for _ in range(20)])
    driver.start_many([NewRun(id=driver.id(), type=OTHER, params='"blue"') for _ in range(7)])
    with patch("holdfast.bounds.SEARCH_RUNS", 5):
        first = search(driver, "blue", type=TYPE)
        assert (first.runs, first.looked_at) == ((), 5)
        assert first.after is not None
        runs, looked_at, calls = every(driver, "blue", type=TYPE)
    assert (runs, looked_at) == (blue[::-1], 22)
    assert calls >= 5
    assert every(driver, "blue", type=TYPE) == (blue[::-1], 22, 1)


@pytest.mark.spec("READ-2")
def test_one_call_looks_at_a_bounded_number_of_bytes_but_at_least_at_one_run(driver):
    sizes = (100, 3000, 100, 200, 500, 2500, 100)
    runs = [driver.start(params=value("x" * size)) for size in sizes][::-1]
    with patch("holdfast.bounds.SEARCH_BYTES", 1000):
        places, after = [], None
        while not places or after is not None:
            found = search(driver, "blue", after=after)
            places.append(found.looked_at)
            after = found.after
        assert places == [1, 1, 3, 1, 1]
        assert every(driver, "xx")[0] == runs


@pytest.mark.spec("READ-2")
def test_a_call_ends_after_as_many_runs_as_it_was_asked_for(driver):
    """It has looked at no more runs than these needed."""
    blue = []
    for _ in range(5):
        blue.append(driver.start(params='"blue"'))
        driver.start(params='"red"')
    found = search(driver, "blue", limit=2)
    assert [run.id for run in found.runs] == blue[:-3:-1]
    assert (found.after, found.looked_at) == (blue[-2], 4)
    assert every(driver, "blue", limit=2)[:2] == (blue[::-1], 10)
    assert every(driver, "blue", limit=1)[:2] == (blue[::-1], 10)


@pytest.mark.spec("READ-2", "READ-1")
def test_found_runs_with_large_values_come_in_several_answers(driver):
    """An answer is bounded in bytes. Runs that are left out are found by the next call."""
    runs = [driver.start(params=f'["blue",{noise(400)}]') for _ in range(5)]
    with patch("holdfast.bounds.BATCH_BYTES", 2000):
        found = search(driver, "blue")
        assert 0 < len(found.runs) < 5
        assert found.after == found.runs[-1].id
        assert found.looked_at == len(found.runs)
        assert every(driver, "blue")[:2] == (runs[::-1], 5)
        assert every(driver, "blue", values=False)[:2] == (runs[::-1], 5)


@pytest.mark.spec("READ-2")
def test_of_an_error_only_its_message_and_its_line_are_searched(driver):
    """Not the names of its fields, nor its traceback; errors of another form do not stop a search."""
    errors = ['["blue"]', '{"message":{"blue":1}}', '{"message":7}', '"blue"', '{"traceback":"blue"}', "null"]
    runs = [driver.start() for _ in errors]
    for claim, error in zip(driver.claim(), errors, strict=True):
        driver.fail(claim, error=error, last_error=f"odd {error[:1]}")
    assert ids(driver, "blue") == ids(driver, "traceback") == ids(driver, "7") == []
    assert ids(driver, "odd") == runs[::-1]
    assert ids(driver, "odd [") == runs[:1]


@pytest.mark.spec("READ-2", "START-9")
@pytest.mark.parametrize(
    "bad",
    [
        {"text": ""}, {"text": "x" * (SEARCHED_MAX + 1)}, {"text": 7}, {"text": None}, {"text": b"x"},
        {"text": "a\0b"}, {"text": "\ud800"}, {"limit": 0}, {"limit": -1}, {"limit": "x"},
        {"where": RunFilter(labels={"a": 7})}, {"where": RunFilter(error=7)},
    ],
    ids=str,
)  # fmt: skip
def test_a_search_that_no_store_can_answer_is_refused(driver, bad):
    with pytest.raises(UsageError):
        driver.run(driver.store.search(**{"text": "x", "where": RunFilter(), **bad}))
