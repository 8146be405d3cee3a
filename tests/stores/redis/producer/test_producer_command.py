"""`holdfast redis producer` prints a script that any client can call, and the other commands see its runs."""

from __future__ import annotations

import pytest
import redis

from servers.plugin import started
from servers.redis import running_redis
from tests.cli.conftest import Cli

SHOP = "shop.order.v1"


@pytest.fixture
def server():
    with started(running_redis({"appendonly": "yes"})) as one:
        yield one


@pytest.mark.slow
@pytest.mark.spec("CLI-1", "STORE-3")
def test_a_run_of_the_printed_script_is_like_any_other(server):
    cli = Cli(server.url("shop"))
    script = cli("redis", "producer", store=False).stdout
    with server.client() as client:
        with pytest.raises(redis.ResponseError, match="start a worker or `holdfast migrate` first"):
            client.eval(script, 1, "{shop}:numbers", SHOP, "1")
        assert cli("migrate").exit_code == 0
        id_, created = client.eval(script, 1, "{shop}:numbers", SHOP, '{"n": 1}', "k1")
        assert created == 1
    assert cli.json("show", id_)["params"] == {"n": 1}
    assert cli.start(SHOP, '{"n": 1}', "--key", "k1") == id_
    assert "started as shop.order.v1" in cli("trail", id_).stdout
    doctor = cli("doctor")
    assert doctor.exit_code == 0, doctor.stdout
    assert "error" not in doctor.stdout
    assert cli("cancel", id_).exit_code == 0
    assert cli.json("show", id_)["status"] == "cancelled"
