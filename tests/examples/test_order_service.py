"""The order service: FastAPI, a worker, Postgres, an approval, a signed webhook, and a killed worker."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from standardwebhooks import Webhook

from tests.examples.processes import Processes, free_port, http, store_url
from tests.laws.effort import longer

SECRET = "whsec_" + base64.b64encode(b"a secret for tests, 32 bytes...!").decode()


@pytest.fixture
def warehouse() -> Iterator[tuple[str, list[dict]]]:
    """An HTTP server that checks the signature of each message and keeps the message."""
    got: list[dict] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            got.append(Webhook(SECRET).verify(body, dict(self.headers)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/orders", got
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["postgres", *longer("redis")])
def service(request, tmp_path, warehouse) -> Iterator[Processes]:
    processes = Processes(
        "order_service",
        tmp_path,
        store_url(request, tmp_path),
        WAREHOUSE_URL=warehouse[0],
        WAREHOUSE_SECRET=SECRET,
    )
    yield processes
    processes.stop()


@pytest.mark.slow
def test_an_order_is_approved_charged_told_and_shipped_through_a_killed_worker(service, warehouse):
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    worker = service.worker("orders:app", "--lease", "2s")
    service.start("-m", "uvicorn", "web:web", "--port", str(port), "--log-level", "warning")
    small = {"number": 1, "cents": 950, "email": "ada@example.org"}
    created = service.until(
        lambda: (answer := http("POST", f"{base}/orders", small, Idempotency_Key="a"))[0] and answer
    )
    assert created[0] == 202
    assert http("POST", f"{base}/orders", small, Idempotency_Key="a") == created, "the same key, the same run"
    assert http("POST", f"{base}/orders", small | {"cents": 1}, Idempotency_Key="a")[0] == 409
    _, large = http("POST", f"{base}/orders", small | {"number": 2, "cents": 200_000}, Idempotency_Key="b")
    _, refused = http("POST", f"{base}/orders", small | {"number": 3, "cents": 200_001}, Idempotency_Key="c")
    service.until(lambda: len(http("GET", f"{base}/approvals")[1]) == 2)

    service.kill(worker)  # nobody executes anything, and people decide all the same
    assert http("POST", f"{base}/orders/{large['run']}/approval?approve=true", X_User="eve")[1]["approved"]
    assert http("POST", f"{base}/orders/{refused['run']}/approval?approve=false", X_User="eve")[0] == 200
    assert http("POST", f"{base}/orders/{refused['run']}/approval?approve=true", X_User="bob")[0] == 409
    service.worker("orders:app", "--lease", "2s")

    service.until(lambda: {one["order"] for one in warehouse[1]} == {1, 2})
    for number in (1, 2):
        for _ in range(2):  # the warehouse may tell it twice
            hook = f"{base}/hooks/shipped?order={number}&parcel=P-{number}"
            assert http("POST", hook, Webhook_Id=f"hook-{number}")[0] == 204
    runs = [created[1]["run"], large["run"], refused["run"]]
    assert [service.until(lambda r=run: http("GET", f"{base}/orders/{r}")[1]["result"]) for run in runs] == [
        "receipt-1, parcel P-1",
        "receipt-2, parcel P-2",
        "refused by eve",
    ]
    assert http("GET", f"{base}/orders/{'0' * 8}-0000-7000-8000-{'0' * 12}") == (
        404,
        {"detail": "no such order"},
    )
