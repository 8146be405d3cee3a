"""The OpenAPI document: schemathesis calls every operation as the document says, with keys of every scope."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engine.live.live import Live
from holdfast.http.openapi import document
from holdfast.http.operation import PARTS, all_operations
from holdfast.http.work.claims import Claims
from holdfast.http.work.moved import Moved
from holdfast.records import Scope
from tests.http.kit import CANARY, MINE, furnished, new_key, shop
from tests.http.real import served
from tests.laws.effort import LONG

DISABLED = (
    # A schema cannot say everything: cursors are signed, types must exist, cron expressions have a grammar,
    # and 700.0 is an integer in JSON Schema. The tests of operations show that right requests are taken.
    "positive_data_acceptance",
    # It deletes a run and expects that nothing is at its address: a deleted run can be restored, and what was
    # removed from the registry, the limits or the sinks can be removed again (`removed` is false).
    "use_after_free",
)
# CI asks for 20 examples of each operation in a step of its own, `./hf test` alone for none.
EXAMPLES = "100" if LONG else os.environ.get("HOLDFAST_EXAMPLES")
with_examples = pytest.mark.skipif(
    EXAMPLES is None, reason="CI has it in a step of its own: HOLDFAST_EXAMPLES=20"
)
# Fewer checks for a key with one scope: most answers are 403, which the others take for a mistake.
SCHEMA_CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    """Let long polls end soon: otherwise a request waits for up to a minute, as the document says."""
    ended = Live.ended
    monkeypatch.setattr(
        Live, "ended", lambda live, run, tenant, wait: ended(live, run, tenant, min(wait, 0.01))
    )
    claim, states = Claims.claim, Moved.states
    monkeypatch.setattr(Claims, "claim", lambda claims, ask, wait: claim(claims, ask, min(wait, 0.01)))
    monkeypatch.setattr(
        Moved, "states", lambda moved, leases, paused, wait: states(moved, leases, paused, min(wait, 0.01))
    )


def fuzzed(scopes, *options, folder, path="openapi.json"):
    """Call all operations with such a key; return the exit code, and what was said."""
    app = shop()
    with served(app) as (port, call):
        call(furnished, app, MINE)
        _, key = call(new_key, app.store, MINE, scopes)
        program = Path(sys.executable).with_name("schemathesis")
        command = [program, "run", f"http://127.0.0.1:{port}/{path}",
                   "-H", f"Authorization: Bearer {key}",
                   "--no-color", "--generation-database", "none", "--seed", "7", "--max-response-time", "10",
                   *options]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=3000)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
@pytest.mark.timeout(600 if not LONG else 6000)
@with_examples
def test_a_key_with_all_scopes(tmp_path):
    phases = "examples,coverage,fuzzing" if LONG else "examples,fuzzing"
    options = ["-n", EXAMPLES, "--phases", phases, "--checks", "all"]
    for one in ("revoke_key", "rotate_key"):  # they would end the key of the test, found in the list of keys
        options += ["--exclude-operation-id", one]
    status, said = fuzzed([*Scope], *options, "--exclude-checks", ",".join(DISABLED), folder=tmp_path)
    assert status == 0, said


@pytest.mark.spec("TEN-3")
@pytest.mark.slow
@pytest.mark.timeout(600 if not LONG else 6000)
@with_examples
@pytest.mark.parametrize("scope", Scope)
def test_a_key_with_one_scope(scope, tmp_path):
    options = ["-n", EXAMPLES, "--phases", "fuzzing", "--checks", SCHEMA_CHECKS]
    status, said = fuzzed([scope], *options, folder=tmp_path)
    assert status == 0, said
    assert CANARY not in said


@pytest.mark.spec("HTTP-3", "HTTP-4")
@pytest.mark.slow
@pytest.mark.timeout(600 if not LONG else 6000)
@with_examples
def test_the_worker_protocol(tmp_path):
    options = ["-n", EXAMPLES, "--phases", "examples,fuzzing", "--checks", "all"]
    # A worker's unknown fields are ignored, and a refused item is part of a good answer.
    disabled = ",".join((*DISABLED, "negative_data_rejection"))
    status, said = fuzzed(
        [*Scope], *options, "--exclude-checks", disabled, folder=tmp_path, path="worker-openapi.json"
    )
    assert status == 0, said


@pytest.mark.spec("HTTP-1", "HTTP-3")
@pytest.mark.parametrize("part", PARTS)
def test_the_document_has_every_operation(part):
    found = {
        one["operationId"]: (method.upper(), path)
        for path, methods in document("", part)["paths"].items()
        for method, one in methods.items()
    }
    shown = {
        name: (one.method, one.path)
        for name, one in all_operations().items()
        if not one.hidden and one.part == part
    }
    assert found == shown
