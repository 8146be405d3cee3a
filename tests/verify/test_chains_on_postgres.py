"""Crash points of a chain on Postgres."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.engine.children.explored_chain import explore_chain
from tests.laws.effort import only_long
from verify.crashpoints.virtual_postgres import Sessions, VirtualPostgresStore
from verify.environment import stores


@only_long
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("FLOW-24", "TEST-2", "MOVE-2", "LEASE-14")
def test_a_chain_on_postgres_ends_the_same_after_a_crash_at_any_store_call(postgres_server):
    """No event is lost or delivered twice, with a pause and a parent."""
    with stores.use_server(postgres_server), closing(Sessions()) as sessions:

        def fresh(clock):
            sessions.admin.execute("select workflow.wipe()")
            return VirtualPostgresStore(sessions, clock)

        assert explore_chain(fresh) > 20
