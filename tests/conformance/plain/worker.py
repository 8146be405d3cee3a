"""A worker written from docs/worker-protocol.md alone: the standard library, threads, nothing of Holdfast."""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

KEY, NAME = os.environ["HOLDFAST_KEY"], os.environ["HOLDFAST_WORKER"]
URL, LEASE_MS = os.environ["HOLDFAST_URL"], int(os.environ["HOLDFAST_LEASE_MS"])
SLOTS = int(os.environ["HOLDFAST_SLOTS"])
TYPE = "conformance.script.v1"
WAIT_MS = 500  # of one claim: short, so that a stop is quick
PROBLEM, TOO_LARGE = "application/problem+json", 413
LOST = (OSError, http.client.HTTPException, ValueError)


class Refused(Exception):
    """The server refused a whole request, and would refuse the same request again."""


class Stop(BaseException):
    """The run is not held any more, or waits: its code ends here."""


class Failed(Exception):
    """The run fails with this error, a record of the protocol."""

    def __init__(self, error: Json) -> None:
        super().__init__(error.get("message", ""))
        self.error = error


class Connection:
    """Requests to the server: repeated until an answer has come."""

    def post(self, path: str, body: Json) -> Json:
        """Return the answer to a request, however long that takes."""
        text, delay = json.dumps(body).encode(), 0.05
        while True:
            wait = delay * (1 + random.random() / 10)
            try:
                return self.once(path, text)
            except urllib.error.HTTPError as error:
                problem = self.problem(error)
                if error.code in {401, 403} and "code" in problem:
                    self.refused(error.code, problem)
                elif error.code == TOO_LARGE or ("code" in problem and not problem.get("retryable")):
                    raise Refused(problem.get("detail", str(error.code))) from None
                wait = self.patience(problem, wait)
            except LOST:
                self.lost(path)
            time.sleep(wait)
            delay = min(2 * delay, 2.0)

    def once(self, path: str, text: bytes) -> Json:
        """Send a request once."""
        headers = {
            "Authorization": f"Bearer {KEY}",
            "Content-Type": "application/json",
            "Holdfast-Protocol": "1",
        }
        request = urllib.request.Request(URL + path, text, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = answer.read()
        return self.parsed(found) if found else {}

    def parsed(self, text: bytes) -> Json:
        """Read an answer. Python's own parser keeps whole numbers of any size."""
        found: Json = json.loads(text)
        return found

    def problem(self, error: urllib.error.HTTPError) -> Json:
        """Return the problem of a refusal; an empty one for what a proxy answers."""
        try:
            found: Json = json.loads(error.read()) if error.headers.get_content_type() == PROBLEM else {}
        except LOST:
            return {}
        return found

    def patience(self, problem: Json, wait: float) -> float:
        """Return the seconds until the same request may be sent again."""
        return float(problem.get("retry_after_ms", 1000 * wait)) / 1000

    def lost(self, path: str) -> None:
        """An answer was lost: the same request is sent again."""

    def refused(self, status: int, problem: Json) -> None:
        """The key is wrong: nothing can be done here."""
        print(f"the key is refused: {status} {problem.get('code')}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(3)


class Waiting:
    """An item that waits for its answer."""

    def __init__(self, item: Json) -> None:
        self.item, self.done = item, threading.Event()
        self.answer: Json | None = None


class Sender(threading.Thread):
    """Sends items. Those that come while a batch is on its way share the next one."""

    def __init__(self, server: Connection) -> None:
        super().__init__(daemon=True)
        self.server, self.changed = server, threading.Condition()
        self.queue: list[Waiting] = []

    def send(self, item: Json) -> Json:
        """Return the answer to an item."""
        waiting = Waiting(item)
        self.put(waiting)
        waiting.done.wait()
        if waiting.answer is None:
            raise Stop
        return waiting.answer

    def put(self, waiting: Waiting) -> None:
        """Put an item into the next batch."""
        with self.changed:
            self.queue.append(waiting)
            self.changed.notify()

    def run(self) -> None:
        """Send batches for ever."""
        while True:
            with self.changed:
                while not self.queue:
                    self.changed.wait()
                batch, self.queue = self.queue, []
            for waiting, answer in zip(batch, self.answers(batch), strict=True):
                problem = (answer or {}).get("problem", {})
                if problem.get("retryable"):
                    threading.Timer(problem.get("retry_after_ms", 50) / 1000, self.put, [waiting]).start()
                else:
                    waiting.answer = answer
                    waiting.done.set()

    def answers(self, batch: list[Waiting]) -> list[Json | None]:
        """Return the answers to a batch, in its order."""
        try:
            found = self.server.post("/leases/batch", {"items": [one.item for one in batch]})
        except (Refused, Stop) as error:
            print(f"a batch was refused: {error}", file=sys.stderr)
            return [None] * len(batch)
        return list(found["items"])


class Held:
    """One lease: the record of its run, and its writes."""

    def __init__(self, worker: Worker, lease: Json, origin: float) -> None:
        self.worker, self.lease, self.origin = worker, lease, origin
        self.run, self.seq, self.known = lease["run"], 1, 0
        self.record: dict[str, Json] = {}
        self.used: dict[str, int] = {}
        self.gone = False
        self.attempt = lease["attempt"] - lease["crashes"]
        self.learn(lease["steps"])

    def now(self) -> float:
        """Return the lease time in milliseconds."""
        return 1000 * (time.monotonic() - self.origin)

    def named(self) -> Json:
        """Return what goes with every write."""
        return {"run": self.run, "fence": self.lease["fence"], "token": self.lease["token"]}

    def learn(self, steps: list[Json]) -> None:
        """Take recorded steps into the record."""
        for step in steps:
            self.record[step["key"]] = step
            self.known = max(self.known, step["seq"])

    def load(self) -> None:
        """Read the whole record, page after page."""
        page = self.page(None)
        self.lease["params"] = page["params"]
        while page["more"]:
            page = self.page(page["steps"][-1]["seq"])

    def page(self, after: int | None) -> Json:
        """Read one page of the record."""
        body = self.named() | ({} if after is None else {"after": after})
        page = self.worker.server.post("/leases/load", body)
        self.learn(page["steps"])
        return page

    def send(self, op: str, **fields: Any) -> Json:
        """Send one item; return its answer when the run is still held, else stop."""
        if self.gone:
            raise Stop
        item = {
            "op": op,
            **self.named(),
            "seq": self.seq,
            "lease_ms": LEASE_MS,
            "known": self.known,
            **fields,
        }
        answer = self.worker.sender.send(item)
        problem = answer.get("problem")
        if problem is None:
            self.seq += 1
            self.known = max(self.known, answer["known"])
            self.gone = answer["status"] != "leased"
        elif problem["code"] == "lease-lost":
            self.gone = True
        else:  # the next item has the same seq
            raise Failed({"kind": problem["code"].replace("-", "_"), "message": problem["detail"]})
        if self.gone:
            raise Stop
        return answer


class Worker:
    """Claims runs, executes each in a thread, and keeps their leases from a thread of its own."""

    def __init__(self, code: Callable[[Held], None]) -> None:
        self.code, self.server = code, Connection()
        self.sender = Sender(self.server)
        self.held: dict[tuple[str, int], Held] = {}
        self.free, self.stopping = threading.Semaphore(SLOTS), threading.Event()
        self.lock = threading.Lock()
        self.claimed: set[tuple[str, int]] = set()  # the leases whose claim was answered
        self.strays: set[tuple[str, int]] = set()
        self.about = {"worker": NAME, "runtime": "plain", "types": [TYPE]}

    def work(self) -> None:
        """Work until it is stopped; then let the runs end their steps."""
        self.register()
        self.sender.start()
        threading.Thread(target=self.beats, daemon=True).start()
        while not self.stopping.is_set():
            self.claim()
        for _ in range(SLOTS):
            self.free.acquire(timeout=10)
        self.server.post("/workers/leave", {"worker": NAME})

    def stop(self) -> None:
        """Claim no more, and give runs back at their next step."""
        self.stopping.set()

    def register(self) -> None:
        """Say who this is."""
        body = {**self.about, "language": "python", "library": "plain", "slots": SLOTS}
        self.server.post("/workers/register", body)

    def claim(self) -> None:
        """Claim for all slots that are free."""
        slots = int(self.free.acquire(timeout=0.1))
        while slots and self.free.acquire(blocking=False):
            slots += 1
        if not slots:
            return
        asked = time.monotonic()
        body = {**self.about, "slots": self.wanted(slots), "lease_ms": LEASE_MS, "wait_ms": WAIT_MS}
        try:
            answer = self.server.post("/leases/claim", body)
        except Refused as error:
            print(f"a claim was refused: {error}", file=sys.stderr)
            answer = {"leases": []}
        for lease in answer["leases"]:
            held = Held(self, lease, self.origin(asked))
            with self.lock:
                self.held[held.run, lease["fence"]] = held
                self.claimed.add((held.run, lease["fence"]))
            threading.Thread(target=self.execute, args=[held], daemon=True).start()
        for _ in range(slots - len(answer["leases"])):
            self.free.release()

    def wanted(self, free: int) -> int:
        """Return how many runs to claim."""
        return free

    def origin(self, _asked: float) -> float:
        """Return the zero of lease time. The claim was made before its answer came."""
        return time.monotonic()

    def execute(self, held: Held) -> None:
        """Execute a run until it ends, waits or is lost."""
        try:
            if held.lease["unread"]:
                held.load()
            self.code(held)
        except Stop:
            pass
        except Exception as error:  # noqa: BLE001 - an error of this program: the run comes back after its lease
            print(f"run {held.run}: {error!r}", file=sys.stderr)
        finally:
            held.gone = True
            with self.lock:
                self.held.pop((held.run, held.lease["fence"]), None)
            self.free.release()

    def beats(self) -> None:
        """Send heartbeats for ever."""
        while True:
            time.sleep(LEASE_MS / 3000)
            self.beat()

    def beat(self) -> None:
        """Send one heartbeat, and stop the runs that are lost or cancelled."""
        with self.lock:
            held = [one for one in self.held.values() if not one.gone]
        leases = [one.named() for one in held]
        try:
            body = {"worker": NAME, "lease_ms": LEASE_MS, "leases": leases}
            answer = self.server.post("/leases/heartbeat", body)
        except Refused as error:
            print(f"a heartbeat was refused: {error}", file=sys.stderr)
            return
        for one, news in zip(held, answer["leases"], strict=True):
            self.told(one, news)
        self.give_back({(one["run"], one["fence"]): one for one in answer["strays"]})

    def told(self, held: Held, news: Json) -> None:
        """Take the news of one lease."""
        held.gone = held.gone or news["state"] != "held"

    def give_back(self, strays: dict[tuple[str, int], Json]) -> None:
        """Release a run that two heartbeats in a row have named: the answer to its claim was lost."""
        with self.lock:
            lost = self.strays & strays.keys() - self.claimed
        self.strays = set(strays) - lost
        for key in lost:
            lease = {name: strays[key][name] for name in ("run", "fence", "token")}
            self.sender.put(Waiting({"op": "release", **lease, "seq": 1}))
