"""A private cluster of Redis or Valkey: three nodes on the loopback, made without other tools."""

from __future__ import annotations

import binascii
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from servers.private import READY_SECONDS, Private, ServerError, free_port
from servers.redis import Redis
from servers.redis_programs import Program, find

SLOTS = 16384
NODES = 3
BUS = 10_000  # servers before 7 talk to each other at their port plus this number
PORT_MAX = 65_535
NODE_SETTINGS = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": "2000",
    # One node is killed in some tests. The others go on for their own slots.
    "cluster-require-full-coverage": "no",
}


class Node(Redis):
    """A server of a cluster."""

    def __init__(self, private: Private, program: Program, settings: Mapping[str, str]) -> None:
        super().__init__(private, program, NODE_SETTINGS | dict(settings), ("port",))
        self.id = ""

    def _chosen(self) -> dict[str, int]:
        if self.program.numbers >= (7,):
            return {"port": free_port(), "cluster-port": free_port()}
        while (port := free_port()) + BUS > PORT_MAX:
            pass
        return {"port": port}

    @property
    def bus(self) -> int:
        return self.ports.get("cluster-port", self.port + BUS)

    def url(self, prefix: str = "holdfast") -> str:
        return f"redis://127.0.0.1:{self.port}/0?prefix={prefix}&durability=memory"

    def ask(self, *command: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*command)


class Cluster:
    """Nodes that share all slots. Each has a part of the same size."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.program = nodes[0].program
        self._share = -(-SLOTS // len(nodes))
        self._moved: dict[int, Node] = {}  # slots that are no longer where they were first

    def join(self) -> None:
        """Make one cluster of the nodes, and wait until all say that it works."""
        for number, node in enumerate(self.nodes):
            slots = range(number * self._share, min((number + 1) * self._share, SLOTS))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "ADDSLOTS", *slots)
            node.id = node.ask("CLUSTER", "MYID")
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
        self.wait_until(lambda: all(map(self._is_whole, self.nodes)))

    def _is_whole(self, node: Node) -> bool:
        said = str(node.ask("CLUSTER", "INFO"))
        ranges = node.ask("CLUSTER", "SLOTS")
        ports = {one["primary"][1] if isinstance(one, dict) else one[2][1] for one in _listed(ranges)}
        return "cluster_state:ok" in said and ports == {one.port for one in self.nodes}

    def wait_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise ServerError(f"the cluster is not ready:\n{self.nodes[0].log()}")
            time.sleep(0.02)

    def url(self, prefix: str = "holdfast") -> str:
        """Return the URL for Holdfast's store: of the first node, which may have the namespace or not."""
        return self.nodes[0].url(prefix)

    def slot(self, prefix: str) -> int:
        """Return the slot of a namespace, as the servers count it."""
        return binascii.crc_hqx(prefix.encode(), 0) % SLOTS

    def owner(self, prefix: str) -> Node:
        """Return the node that has a namespace."""
        slot = self.slot(prefix)
        return self._moved.get(slot) or self.nodes[slot // self._share]

    def client(self, prefix: str) -> redis.Redis:
        """Return a connection to the node that has a namespace."""
        return self.owner(prefix).client()

    def begin_move(self, prefix: str, target: Node) -> int:
        """Begin to move the slot of a namespace to another node. Return the slot."""
        slot, source = self.slot(prefix), self.owner(prefix)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return slot

    def move_keys(self, prefix: str, target: Node, count: int = 10) -> int:
        """Move some keys of a slot. Return how many there were."""
        slot, source = self.slot(prefix), self.owner(prefix)
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, prefix: str, target: Node) -> None:
        """Give the slot to its new node."""
        slot, source = self.slot(prefix), self.owner(prefix)
        for node in (target, source, *self.nodes):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        self.moved(prefix, target)

    def moved(self, prefix: str, target: Node) -> None:
        """Note that a namespace is on another node now."""
        self._moved[self.slot(prefix)] = target

    def move(self, prefix: str, target: Node, between: Callable[[], None] = lambda: None) -> None:
        """Move a namespace to another node, some keys at a time, as tools for clusters do."""
        self.begin_move(prefix, target)
        between()
        while self.move_keys(prefix, target):
            between()
        self.end_move(prefix, target)

    def other(self, prefix: str) -> Node:
        """Return a node that does not have a namespace."""
        return next(node for node in self.nodes if node is not self.owner(prefix))


def _listed(ranges: Any) -> list[Any]:
    """Return the answer to CLUSTER SLOTS as a list, however the driver has shaped it."""
    return list(ranges.values()) if isinstance(ranges, dict) else list(ranges)


@contextmanager
def running_cluster(program: Program | None = None, nodes: int = NODES) -> Iterator[Cluster]:
    """Run a private cluster. It ends with this process, however that ends."""
    program = program or find()
    with ExitStack() as stack:
        started = []
        for _ in range(nodes):
            private = stack.enter_context(Private("redis"))
            started.append(Node(private, program, {}))
            started[-1].start()
        cluster = Cluster(started)
        cluster.join()
        yield cluster
