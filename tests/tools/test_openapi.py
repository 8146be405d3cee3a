"""The check for changes of the HTTP API that break clients."""

from __future__ import annotations

import copy
import json
import subprocess

import pytest

from tools import openapi
from tools.openapi import breaks, released

DOCUMENT = {
    "components": {
        "schemas": {
            "Run": {
                "type": "object",
                "required": ["id", "status"],
                "properties": {
                    "id": {"type": "string", "format": "uuid"},
                    "status": {"enum": ["open", "ended"]},
                    "error": {"anyOf": [{"$ref": "#/components/schemas/Error"}, {"type": "null"}]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
            },
            "Error": {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}},
            "Start": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"type": "string", "maxLength": 255},
                    "priority": {"anyOf": [{"type": "integer", "maximum": 999}, {"type": "null"}]},
                    "verb": {"enum": ["a", "b"]},
                },
            },
        }
    },
    "paths": {
        "/runs": {
            "post": {
                "operationId": "start",
                "parameters": [{"in": "query", "name": "tenant", "schema": {"type": "string"}}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/x/Start"}}},
                },
                "responses": {
                    "201": {
                        "description": "",
                        "content": {"application/json": {"schema": {"$ref": "#/x/Run"}}},
                    },
                    "422": {"description": ""},
                },
            },
            "get": {"operationId": "list", "responses": {"204": {"description": ""}}, "security": []},
        }
    },
}
SCHEMAS, POST = ("components", "schemas"), ("paths", "/runs", "post")
GONE = object()
BREAKS = {
    "the operation was removed": {("paths", "/runs", "post"): GONE},
    "operationId start became begin": {(*POST, "operationId"): "begin"},
    "it needs a key now": {("paths", "/runs", "get", "security"): GONE},
    "query tenant was removed": {(*POST, "parameters"): []},
    "query tenant is required now": {(*POST, "parameters", 0, "required"): True},
    "query tenant takes no string any more": {(*POST, "parameters", 0, "schema", "type"): "integer"},
    "it takes no body any more": {(*POST, "requestBody"): GONE},
    "body.verb was removed": {(*SCHEMAS, "Start", "properties", "verb"): GONE},
    "body.verb is required now": {(*SCHEMAS, "Start", "required"): ["type", "verb"]},
    "body.verb does not take 'b' any more": {(*SCHEMAS, "Start", "properties", "verb", "enum"): ["a"]},
    "body.type: maxLength is 10 now, and was 255": {
        (*SCHEMAS, "Start", "properties", "type", "maxLength"): 10
    },
    "body.priority: maximum is 99 now, and was 999": {
        (*SCHEMAS, "Start", "properties", "priority", "anyOf", 0, "maximum"): 99
    },
    "body.priority takes no null any more": {
        (*SCHEMAS, "Start", "properties", "priority"): {"type": "integer"}
    },
    "body.type has another pattern": {(*SCHEMAS, "Start", "properties", "type", "pattern"): "^a"},
    "the answer 201 was removed": {(*POST, "responses", "201"): GONE},
    "the answer 201 is not application/json any more": {(*POST, "responses", "201", "content"): {}},
    "answer 201.status was removed": {(*SCHEMAS, "Run", "properties", "status"): GONE},
    "answer 201.status may be missing now": {(*SCHEMAS, "Run", "required"): ["id"]},
    "answer 201.status is never 'ended' any more": {
        (*SCHEMAS, "Run", "properties", "status", "enum"): ["open"]
    },
    "answer 201.id may be integer now": {(*SCHEMAS, "Run", "properties", "id"): {"type": "integer"}},
    "answer 201.id may be string now": {(*SCHEMAS, "Run", "properties", "id"): {"type": "string"}},
    "answer 201.error.kind was removed": {(*SCHEMAS, "Error", "properties", "kind"): GONE},
    "answer 201.tags[] may be integer now": {
        (*SCHEMAS, "Run", "properties", "tags", "items"): {"type": "integer"}
    },
}
KEPT = [
    {("paths", "/new"): {"get": {"operationId": "new", "responses": {}}}},
    {(*POST, "parameters", 0, "required"): False},
    {(*SCHEMAS, "Start", "properties", "more"): {"type": "string"}},
    {(*SCHEMAS, "Start", "properties", "verb", "enum"): ["a", "b", "c"]},
    {(*SCHEMAS, "Start", "properties", "type", "maxLength"): GONE},
    {(*SCHEMAS, "Start", "required"): []},
    {(*SCHEMAS, "Run", "properties", "more"): {"type": "string"}},
    {(*SCHEMAS, "Run", "properties", "error"): {"$ref": "#/components/schemas/Error"}},
    {(*POST, "responses", "422"): GONE},
    {(*POST, "summary"): "Another text."},
    {(*POST, "parameters", 0, "schema"): {"type": "array", "items": {"type": "string"}}},
]  # fmt: skip


def changed(changes):
    document = copy.deepcopy(DOCUMENT)
    for path, value in changes.items():
        place = document
        for part in path[:-1]:
            place = place[part]
        if value is GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    return document


@pytest.mark.parametrize("sentence", BREAKS)
def test_a_change_that_breaks_clients_is_found(sentence):
    found = breaks(DOCUMENT, changed(BREAKS[sentence]))
    assert [one.partition(": ")[2] for one in found] == [sentence]


@pytest.mark.parametrize("changes", KEPT, ids=range(len(KEPT)))
def test_other_changes_are_none(changes):
    assert breaks(DOCUMENT, changed(changes)) == []
    assert breaks(DOCUMENT, DOCUMENT) == []


def test_the_present_document_is_compared_with_itself():
    document = json.loads((openapi.FOLDER / "openapi.json").read_text("utf-8"))
    assert breaks(document, document) == []


def test_the_newest_release_counts(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True,
                       capture_output=True)  # fmt: skip

    git("init")
    assert released(tmp_path) is None
    file = tmp_path / "docs" / "reference" / "openapi.json"
    file.parent.mkdir(parents=True)
    for version in ("v0.9.0", "v0.10.0"):
        file.write_text(version)
        git("add", ".")
        git("commit", "-m", version)
        git("tag", version)
    file.write_text("later")
    assert released(tmp_path) == ("v0.10.0", "v0.10.0")
