"""Lists in the specification match the program: commands, kinds of errors, tables."""

from __future__ import annotations

import ast
import re
from itertools import chain

import pytest

from holdfast import arguments, bounds, cron, step_keys
from holdfast.cli.main import COMMANDS
from tests.docs import pages

SPEC = (pages.ROOT / "docs" / "spec.md").read_text("utf-8")


def line(id_):
    (found,) = re.findall(rf"^- {id_} (.*)$", SPEC, re.MULTILINE)
    return found


def test_every_command_is_in_the_specification():
    documented_commands = re.findall(r"`([a-z]+)`", line("CLI-1").partition(" are the commands of ")[0])
    assert sorted(documented_commands) == sorted(COMMANDS)


def marked(id_):
    """Return the sources of all tests that are marked with this line of the specification."""
    folders = (pages.ROOT / "tests", pages.ROOT / "src" / "holdfast" / "testing" / "contract")
    for path in chain.from_iterable(folder.rglob("test_*.py") for folder in folders):
        source = path.read_text("utf-8")
        if id_ in source:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    marks = "".join(ast.unparse(one) for one in node.decorator_list)
                    if f"'{id_}'" in marks:
                        yield marks + ast.unparse(node)


KINDS = re.findall(r"`([a-z_]+)`", line("RETRY-7"))
SHOWN = list(marked("RETRY-7"))


def test_the_specification_lists_the_kinds_of_errors():
    assert {"exhausted", "child_failed", "usage", "too_large", "encoding"} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_error_has_a_test(kind):
    assert any(f"'{kind}'" in source for source in SHOWN), f"no test of RETRY-7 names {kind}"


def test_every_documented_table_exists():
    files = (pages.ROOT / "src/holdfast/stores/postgres/schema").glob("*.sql")
    schema = "\n".join(file.read_text("utf-8") for file in files)
    there = set(re.findall(r"^create (?:unlogged )?table (workflow_\w+)", schema, re.MULTILINE))
    page = (pages.ROOT / "docs" / "sql.md").read_text("utf-8")
    documented = page.partition("\n## Tables\n")[2].partition(" Of `workflow_run`")[0]
    assert documented
    assert set(re.findall(r"`(workflow_\w+)`", documented)) <= there


def test_the_documented_limits_match_the_code():
    page = " ".join((pages.ROOT / "SECURITY.md").read_text("utf-8").split())
    assert bounds.VALUE_BYTES == 4 * 2**20
    assert (
        f"4 MiB a value, {bounds.DEPTH_MAX} levels, {arguments.TOPIC_MAX} characters a topic, "
        f"{arguments.NAME_MAX} a name, a type or an idempotency key, "
        f"{step_keys.STEP_NAME_MAX} the name of a step, {step_keys.KEY_MAX} its key"
    ) in page
    assert f"A cron expression has at most {cron.TEXT_MAX} characters" in page
