"""Crash points of a chain on Postgres."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.engine.chained import explored
from tests.laws.often import LONG
from verify import places
from verify.rehearsed import Rehearsed, Sessions


@pytest.mark.skipif(not LONG, reason="it takes a minute or two: HOLDFAST_LAWS=long")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("FLOW-24", "TEST-2", "MOVE-2", "LEASE-14")
def test_a_chain_on_postgres_ends_the_same_whoever_dies_at_any_store_call(postgres_server):
    """With events, a pause and a parent: no event is lost or given twice."""
    with places.lent(postgres_server), closing(Sessions()) as sessions:

        def fresh(clock):
            sessions.admin.execute("select workflow.wipe()")
            return Rehearsed(sessions, clock)

        assert explored(fresh) > 20
