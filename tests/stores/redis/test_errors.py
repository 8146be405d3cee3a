"""Errors of the server: which of them pass, which stay, and which say that nothing was carried out."""

from __future__ import annotations

import pytest
from redis.exceptions import AuthenticationError, ResponseError

from holdfast.errors import StoreError, Unavailable
from holdfast.stores.redis.errors import Redirect, redirect, translated

OLD = "ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -{} "


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("MOVED 3999 10.0.0.1:6381", Redirect("MOVED", ("10.0.0.1", 6381))),
        ("MOVED 3999 :6381", Redirect("MOVED", ("", 6381))),
        ("MOVED 3999 ?:6381", Redirect("MOVED", ("", 6381))),
        ("MOVED 3999 2001:db8::1:6381", Redirect("MOVED", ("2001:db8::1", 6381))),
        ("ASK 3999 node.shop:6381", Redirect("ASK", ("node.shop", 6381))),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Redirect("TRYAGAIN")),
        ("CLUSTERDOWN The cluster is down", Redirect("CLUSTERDOWN")),
        ("LOADING Redis is loading the dataset in memory", Redirect("LOADING")),
        ("MASTERDOWN Link with MASTER is down", Redirect("MASTERDOWN")),
        ("READONLY You can't write against a read only replica.", Redirect("READONLY")),
        (OLD.format("READONLY") + "You can't write against a read only replica.", Redirect("READONLY")),
        ("OOM command not allowed when used memory > 'maxmemory'.", None),
        ("NOSCRIPT No matching script. Please use EVAL.", None),
        ("ERR the text says MOVED 1 a:2", None),
    ],
)
def test_an_error_that_says_that_nothing_was_carried_out_leads_to_another_try(said, wanted):
    assert redirect(ResponseError(said)) == wanted


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize(
    "said",
    [
        "OOM command not allowed when used memory > 'maxmemory'.",
        OLD.format("OOM") + "command not allowed when used memory > 'maxmemory'.",
        "MISCONF Errors writing to the AOF file",
        "NOREPLICAS Not enough good replicas to write.",
        "BUSY Redis is busy running a script.",
        "CLUSTERDOWN Hash slot not served",
        "UNKILLABLE The busy script was sent by a master instance",
    ],
)
def test_a_server_that_cannot_write_now_is_unavailable(said):
    error = translated(ResponseError(said), "redis://host")
    assert type(error) is Unavailable
    assert str(error).startswith("redis://host: ")


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize(
    "error",
    [
        ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ResponseError("CROSSSLOT Keys in request don't hash to the same slot"),
        ResponseError("NOPERM User holdfast has no permissions to access one of the keys"),
        AuthenticationError("WRONGPASS invalid username-password pair or user is disabled."),
    ],
)
def test_an_error_that_stays_is_no_reason_to_try_again(error):
    assert type(translated(error, "redis://host")) is StoreError


@pytest.mark.spec("CLI-3")
def test_a_server_that_wants_a_password_says_how_to_give_it():
    said = str(translated(ResponseError("NOAUTH Authentication required."), "redis://host"))
    assert said == "redis://host: the server wants a password: write redis://user:password@host:6379/0"
