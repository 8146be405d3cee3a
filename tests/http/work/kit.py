"""A worker of the protocol for tests: it sends one request at a time, and remembers leases and numbers."""

from __future__ import annotations

from itertools import count

import msgspec

import holdfast as hf
from holdfast.records import Scope
from tests.http.kit import Kit

TYPE = "shop.order.v1"
_names = count(1)


def server(store="memory://", **options):
    """A server whose app has no code of its own: everything is executed over the protocol."""
    return Kit(hf.App(store), **options)


class Lease:
    """One lease of a worker, with the number of its next item."""

    def __init__(self, worker, data):
        self.worker, self.data, self.seq = worker, data, 0
        self.run, self.fence, self.token = data["run"], data["fence"], data["token"]

    def __getitem__(self, name):
        return self.data[name]

    @property
    def steps(self):
        """The recorded steps, by key."""
        return {one["key"]: one for one in self.data["steps"]}

    @property
    def named(self):
        """The fields that name the lease in a request."""
        return {"run": self.run, "fence": self.fence, "token": self.token}

    def item(self, op, *steps, **fields):
        """The next item of this lease."""
        self.seq += 1
        return {"op": op, **self.named, "seq": self.seq, "steps": list(steps), **fields}

    def send(self, op, *steps, **fields):
        """Send the next item alone; return its answer."""
        (answer,) = self.worker.batch(self.item(op, *steps, **fields))
        return answer


class Worker:
    """A worker with a key of one tenant."""

    def __init__(
        self, kit, *, tenant="default", types=(TYPE,), runtime="go", key=None, patterns=(), **options
    ):
        self.kit, self.types, self.runtime, self.options = kit, list(types), runtime, options
        self.name = f"worker {next(_names)}"
        self.key = key or kit.key(Scope.WORK, tenant=tenant, patterns=tuple(patterns))

    def ask(self, path, body, status=200, **params):
        """Send a request; return the answer."""
        response = self.kit.ask("POST", path, self.key, json=body, params=params)
        assert response.status_code == status, response.text
        assert response.headers["holdfast-protocol"] == "1"
        return response.json() if response.content else None

    def register(self, **fields):
        """Register."""
        body = {"worker": self.name, "language": "go", "library": "tests", "runtime": self.runtime,
                "types": self.types, "slots": 10, **fields}  # fmt: skip
        return self.ask("/workers/register", body)

    def claimed(self, **fields):
        """Claim, and return the whole answer."""
        params = {"tenant": fields.pop("tenant")} if "tenant" in fields else {}
        body = {"worker": self.name, "runtime": self.runtime, "types": self.types, "slots": 10,
                **self.options, **fields}  # fmt: skip
        return self.ask("/leases/claim", body, **params)

    def claim(self, **fields):
        """Claim; return the leases."""
        return [Lease(self, one) for one in self.claimed(**fields)["leases"]]

    def one(self, **fields):
        """Claim exactly one run; wait for it."""
        (lease,) = self.claim(wait_ms=10_000, **fields)
        return lease

    def batch(self, *items, **params):
        """Send a batch; return the answers."""
        return self.ask("/leases/batch", {"items": list(items)}, **params)["items"]

    def beat(self, *leases, **fields):
        """Send a heartbeat for leases, or for bodies of leases; return the whole answer."""
        named = [one if isinstance(one, dict) else one.named for one in leases]
        return self.ask("/leases/heartbeat", {"worker": self.name, "leases": named, **fields})

    def load(self, lease, status=200, **fields):
        """Read a page of a large run."""
        return self.ask("/leases/load", {**lease.named, **fields}, status)


def start(kit, params=None, type=TYPE, **options):
    """Start a run; return its id as text."""
    of = kit.app.of(options.pop("tenant", "default"))
    return str(kit.run(of.start, type, params, **options).id)


def get(kit, run, tenant="default"):
    """Read a run."""
    return kit.run(kit.app.of(tenant).get, run)


def trail(kit, run):
    """The types of a run's trail."""
    return [one.type for one in kit.run(kit.app.trail, run)]


def problem(answer):
    """The status and the code of the problem of an item."""
    assert answer["answer"] == "refused"
    return answer["problem"]["status"], answer["problem"]["code"]


def decoded(text):
    """JSON with its numbers as they are written."""
    return msgspec.json.decode(text)
