"""The kit itself: a server that is killed comes back at the same address with the same store."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_a_killed_server_comes_back_with_its_runs(own_site):
    run = own_site.start("shop.order.v1", {"id": 42})
    address = own_site.url

    own_site.server.kill()
    own_site.serve()

    assert own_site.url == address
    assert own_site.run(run)["params"] == {"id": 42}
    assert own_site.steps(run) == []
    assert [one["type"] for one in own_site.trail(run)] == ["created"]
