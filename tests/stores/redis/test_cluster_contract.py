"""The contract suite in a cluster: a part of it, or all in the long form and with `--redis-cluster`."""

from __future__ import annotations

import os

from holdfast.testing import contract
from servers.redis_store import make_in_cluster
from tests.laws.effort import LONG
from tests.stores.contract_parts import part

# Hot scripts, the way by the machine, events and waits, lists.
THIN = {"test_start", "test_claim", "test_commit", "test_lease", "test_waits", "test_pages", "test_people"}

IS_WHOLE = LONG or os.environ.get("HOLDFAST_TEST_REDIS_CLUSTER") == "whole"
TestCluster = contract(make_in_cluster) if IS_WHOLE else part(make_in_cluster, "TestCluster", THIN)
