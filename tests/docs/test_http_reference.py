"""The lists of operations and problems: the generated pages and those of a server have all of them."""

from __future__ import annotations

import re

import pytest

from holdfast.http import docs, openapi
from holdfast.http.operation import HEADER_NAMES, PARTS, TAGS, all_operations, operations_by_tag
from holdfast.http.problems import CAUSES
from tests.docs import pages

REFERENCE = pages.ROOT / "docs" / "reference"
SHOWN = [one for one in all_operations().values() if not one.hidden]


def test_every_operation_is_listed_once_under_its_tag():
    groups = operations_by_tag()
    assert [*groups] == [*TAGS]
    assert sorted(one.id for group in groups.values() for one in group) == sorted(one.id for one in SHOWN)
    assert {one.tag for one in all_operations().values()} <= set(TAGS)


@pytest.mark.spec("HTTP-1")
@pytest.mark.parametrize("one", SHOWN, ids=lambda one: one.id)
def test_every_operation_is_on_both_pages(one):
    page = docs.operations_html("/api")
    assert page.count(f'<h3 id="{one.id}">') == 1
    assert f"<code>{one.path}</code>" in page
    assert f"| `{one.method} {one.path}` |" in (REFERENCE / "http.md").read_text("utf-8")


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize("code", CAUSES)
def test_every_code_is_on_both_pages(code):
    assert f'<tr id="{code}">' in docs.problems_html("")
    assert f"| `{code}` | {CAUSES[code].status} |" in (REFERENCE / "problems.md").read_text("utf-8")


def test_the_pages_of_a_server_are_plain_html():
    for page in (docs.operations_html("/api"), docs.problems_html("/api")):
        assert "`" not in page
        assert "<script" not in page
        assert all(link.startswith(("/api/", "#")) for link in re.findall(r'href="([^"]*)"', page))


def test_headers_are_named_as_they_are_sent():
    found = {
        parameter["name"]
        for part in PARTS
        for path in openapi.document("", part)["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "header"
    }
    assert found == {"Idempotency-Key", "Last-Event-ID", "Holdfast-Protocol"} == set(HEADER_NAMES.values())
