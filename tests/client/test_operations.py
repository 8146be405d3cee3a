"""The client and the server know the same operations, and the client has the verbs of an app."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import holdfast as hf
from holdfast.client.bulk import BulkVerbs
from holdfast.client.client import Client
from holdfast.client.operations import OPERATIONS
from holdfast.client.sync import SyncClient
from holdfast.engine.app.bulk import BulkOperations
from holdfast.engine.app.client import StoreClient
from holdfast.http.operation import API, all_operations

# Operations that the client does not call, and why.
NOT_CALLED = {
    "healthz": "for load balancers",
    "readyz": "for load balancers",
    "metrics": "for Prometheus",
    "openapi_json": "for people and generators",
    "worker_openapi_json": "for people and generators",
    "docs_page": "for people",
    "problems_page": "for people",
    "count": "`bulk.preview` counts",
    "children": "`children_of_many` counts those of several runs",
    "list_bulk": "`list` with the type of bulk operations",
}
# Verbs of an app that need the store itself.
STORE_ONLY = {
    "confirm_export", "export", "import_", "move", "preview_move", "purge", "recount", "release_import",
    "rotate_signing_key", "undo_export", "undo_move",
}  # fmt: skip
# Operations under another name than the verb that calls them.
VERBS = {
    "children_of_many": "children",
    "trail_of_all": "trail",
    "get_schedule": "schedules",
    "preview": "bulk",
}


@pytest.mark.spec("HTTP-8")
def test_the_table_of_the_client_is_that_of_the_server():
    table = {name: one for name, one in all_operations().items() if one.part == API}
    server = {name: (one.method, one.path) for name, one in table.items()}
    client = {name: (one.method, one.path) for name, one in OPERATIONS.items()}
    assert client == {name: one for name, one in server.items() if name not in NOT_CALLED}
    assert set(NOT_CALLED) <= set(server)


@pytest.mark.spec("HTTP-8")
def test_every_operation_has_a_verb_and_every_verb_of_an_app_is_there():
    assert {VERBS.get(name, name) for name in OPERATIONS} <= set(dir(Client))
    verbs = {
        name
        for name, one in inspect.getmembers(StoreClient)
        if name[0] != "_" and (inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one))
    }
    assert verbs - STORE_ONLY <= set(dir(Client))
    for name in verbs - STORE_ONLY:
        here, there = (_parameters(getattr(cls, name)) for cls in (Client, StoreClient))
        assert here == there, name


def _parameters(method):
    return [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]


def test_bulk_and_sync_have_the_same_verbs():
    for name in ("preview", "cancel", "pause", "resume", "retry", "rewind", "delete"):
        assert _parameters(getattr(BulkVerbs, name)) == _parameters(getattr(BulkOperations, name))
    verbs = {name for name, one in inspect.getmembers(Client, inspect.iscoroutinefunction) if name[0] != "_"}
    assert verbs - {"open"} <= set(dir(SyncClient))


def test_the_client_needs_no_library_of_the_server_and_help_needs_no_client():
    blocked = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'click'): sys.modules[name] = None\n"
        "import holdfast as hf\n"
        "assert 'holdfast.client' not in sys.modules\n"
        "hf.Client('http://localhost:1')\n"
    )
    assert subprocess.run([sys.executable, "-c", blocked], check=False).returncode == 0
    light = (
        "import sys\nfrom holdfast.cli.main import cli\n"
        "assert not {'httpx2', 'holdfast.client', 'holdfast.engine'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", light], check=False).returncode == 0


def test_without_the_extra_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(hf.UsageError, match="needs the extra `client`"):
        hf.Client("http://localhost:1")
