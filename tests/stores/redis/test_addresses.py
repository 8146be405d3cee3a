"""Addresses: TLS, passwords and sockets, and options of the URL, also wrong ones."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.errors import StoreError, Unavailable, UsageError
from holdfast.stores.redis.address import parsed
from holdfast.stores.redis.errors import DRIVER, translated
from holdfast.stores.redis.link import Driver
from servers.plugin import missing, need, started
from servers.redis import running_redis
from servers.redis_programs import find, programs
from tests.stores.redis.test_connections import PING, _log

PLACE = "redis://user:secret@host:6379/0"


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("prefix=", "prefix"),
        ("prefix=a:b", "prefix"),
        ("prefix={x}", "prefix"),
        ("durability=none", "durability=none"),
        ("replicas=-1", "replicas=-1"),
        ("replicas=x", "replicas=x"),
        ("replicas=1&wait_ms=0", "wait_ms=0"),
        ("aof=2", "aof=2"),
        ("wait_ms=10", "replicas=1 or aof=1"),
    ],
)
def test_a_wrong_option_of_the_url_is_refused_with_its_name_and_without_the_password(options, said):
    with pytest.raises(UsageError) as refused:
        parsed(f"{PLACE}?{options}")
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    "url",
    [
        "redis://host:port/0",
        "redis://host:99999/0",
        "redis://host:6379/shop",
        "redis://[::1:6379/0",
        "redis://user:sec#ret@host/0",
        "redis://user:sec/ret@host/0",
        "redis://user:sec?ret@host/0",
        "redis://user:[sec]ret@host/0",
        "redis://user:sec\N{FULLWIDTH COLON}ret@host/0",
        "redis://user:sec\N{ACCOUNT OF}ret@host/0",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_any_part_of_it(url):
    with pytest.raises(UsageError) as refused:
        parsed(url)
    assert str(refused.value).startswith("the store URL cannot be read: write redis://user:password@host")
    assert not {"sec", "ret", "shop", "99999"} & set(re.findall(r"\w+", str(refused.value)))
    assert parsed("redis://[::1]:6379/1/").url
    assert parsed("redis://user:s%5Bec%EF%BC%9Aret\N{LATIN SMALL LETTER O WITH DIAERESIS}@[::1]/1").url
    assert parsed("unix:///run/redis.sock").url


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("bogus=secret", "the option bogus, which is not known"),
        ("ssl_ca_certs=/etc/ca.pem", "only with rediss://"),
        ("db=secret", "Invalid value for 'db'"),
        ("retry=secret", "retry in the store URL"),
    ],
)
def test_an_option_that_the_driver_does_not_take_is_refused_by_name_and_without_its_value(options, said):
    with pytest.raises(UsageError) as refused:
        Driver(parsed(f"{PLACE}?{options}").url)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://127.0.0.1:1", "nobody listens there"),
        ("unix:///no/such.sock", "nobody listens there (no such socket)"),
        ("rediss://127.0.0.1:1?ssl_ca_certs=/no/such.pem", "a file that the URL names for TLS"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_in_plain_words(url, said):
    with pytest.raises(DRIVER) as lost:
        asyncio.run(Driver(url).connected())
    error = translated(lost.value, url)
    assert type(error) is Unavailable
    assert said in str(error)


@pytest.mark.spec("STORE-3")
def test_options_of_the_driver_are_passed_on_and_ours_are_not():
    address = parsed("valkeys://host/2?prefix=shop&replicas=2&wait_ms=50&ssl_ca_certs=/etc/ca.pem&aof=1")
    assert address.url == "rediss://host/2?ssl_ca_certs=/etc/ca.pem"
    assert address.confirming == ("WAITAOF", 1, 2, 50)
    assert parsed("redis://host?replicas=1").confirming == ("WAIT", 1, 1000)
    assert parsed("redis://host").confirming is None


async def ping(all_of):
    return await all_of.ask(PING)


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_password_and_a_user_are_given_and_wrong_ones_are_refused_for_good(calling):
    with started(running_redis({"requirepass": "secret"}, listens=("port",))) as server:
        with server.client() as client:
            client.acl_setuser(
                "holdfast",
                enabled=True,
                reset_channels=True,
                passwords=["+its:secret"],
                keys=["{shop}:*"],
                channels=["{shop}:*"],
                commands=["+@all", "-@admin", "-@dangerous", "+info"],
            )
        place = f"127.0.0.1:{server.port}/0?prefix=shop"
        assert calling(f"redis://:secret@{place}", ping) == ["PONG"]
        assert calling(f"valkey://holdfast:its%3Asecret@{place}", ping) == ["PONG"]
        for who in (":wrong@", "holdfast:wrong@", "nobody:secret@", ""):
            with pytest.raises(StoreError) as refused:
                calling(f"redis://{who}{place}", ping)
            assert not isinstance(refused.value, Unavailable)
            assert "secret" not in str(refused.value)
        with pytest.raises(StoreError) as refused:
            calling(f"unix://{server.socket}?prefix=shop&password=wrong", ping)
        assert not isinstance(refused.value, Unavailable)
        with pytest.raises(StoreError, match=r"(?i)noperm|no permissions|permission"):
            calling(f"redis://holdfast:its%3Asecret@{place.replace('shop', 'other')}", ping)


@pytest.fixture
def certificates():
    """A folder with the certificates of an authority, of a server at 127.0.0.1 and of a client."""
    need("openssl")
    # Not a folder of pytest: the account of the server may not read it.
    with tempfile.TemporaryDirectory() as folder:

        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

        for name in ("ca", "other"):
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-days", "2",
                    "-keyout", f"{name}.key", "-out", f"{name}.crt")  # fmt: skip
        Path(folder, "names").write_text("subjectAltName=IP:127.0.0.1")
        for name in ("server", "client"):
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                    "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                    "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.crt")  # fmt: skip
        for path in (Path(folder), *Path(folder).iterdir()):
            path.chmod(0o755)
        yield folder


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_tls_needs_a_certificate_of_a_known_authority_on_both_sides(calling, certificates, scheme):
    folder = certificates
    settings = {
        "tls-cert-file": f"{folder}/server.crt",
        "tls-key-file": f"{folder}/server.key",
        "tls-ca-cert-file": f"{folder}/ca.crt",
    }
    with started(running_redis(settings, listens=("tls-port",), program=with_tls())) as server:
        place = f"{scheme}://127.0.0.1:{server.ports['tls-port']}/0?prefix=tls"
        mine = f"&ssl_certfile={folder}/client.crt&ssl_keyfile={folder}/client.key"

        async def work(all_of):
            await _log(all_of, "x" * 300_000)  # more than one record of TLS
            (row,) = await all_of.ask([("ZRANGE", "{tls}:trail", 0, -1)])
            return len(row[0])

        assert calling(f"{place}&ssl_ca_certs={folder}/ca.crt{mine}", work) > 300_000
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            calling(f"{place}&ssl_ca_certs={folder}/other.crt{mine}", ping)
        with pytest.raises(Unavailable):
            calling(f"{place}&ssl_ca_certs={folder}/ca.crt", ping)


def with_tls():
    """Return a program that can do TLS: those of the wheels cannot."""
    for program in programs():
        # A wrong port ends the program at once. One without TLS complains of the word before.
        asked = [program.path, "--tls-port", "0", "--port", "none"]
        env = os.environ | program.env()
        said = subprocess.run(asked, capture_output=True, text=True, check=False, env=env)
        if "tls-port" not in said.stdout + said.stderr:
            return program
    return missing("no server program here can do TLS: apt install redis-server", "CI")


@pytest.mark.slow
@pytest.mark.spec("STORE-8")
def test_a_write_waits_for_as_many_replicas_as_the_url_asks_for(calling):
    """A write that too few replicas have is unknown: it was carried out here, and a failover may lose it."""
    with ExitStack() as stack:
        primary = stack.enter_context(started(running_redis(listens=("port",))))
        replica = stack.enter_context(started(running_redis()))
        client, main = map(stack.enter_context, (replica.client(), primary.client()))
        client.replicaof("127.0.0.1", primary.port)
        while main.info("replication").get("slave0", {}).get("state") != "online":
            time.sleep(0.01)

        def write(row, replicas, wait_ms):
            url = f"{primary.url()}&replicas={replicas}&wait_ms={wait_ms}"
            return calling(url, lambda all_of: _log(all_of, row))

        assert write("one", 1, 5000)[1:] == [1]
        assert client.zcard("{holdfast}:trail") == 1
        replica.pause()
        with pytest.raises(Unavailable, match=r"not confirmed within 20 ms \(0 of 1 replicas\)"):
            write("two", 1, 20)
        replica.go_on()
        assert write("three", 1, 5000)[1:] == [1]
        with pytest.raises(Unavailable, match="1 of 2 replicas"):
            write("four", 2, 500)
        assert main.zcard("{holdfast}:trail") == 4


@pytest.mark.slow
@pytest.mark.spec("STORE-8")
def test_aof_is_refused_where_the_server_does_not_know_it_or_answers_too_early(calling):
    """With everysec, Valkey 9.1 answers WAITAOF before the file is on the disk."""
    program = find()
    knows = program.kind == "valkey" or program.numbers >= (7, 2)
    for settings, refusal in (
        ({"appendfsync": "always"}, None if knows else "needs WAITAOF"),
        (
            {"appendfsync": "everysec"},
            "promises nothing with appendfsync everysec" if knows else "needs WAITAOF",
        ),
        ({"appendonly": "no"}, "appendonly"),
    ):
        with started(running_redis(settings)) as server:
            url = server.url() + "&aof=1&wait_ms=100"
            if refusal is None:
                assert calling(url, lambda all_of: _log(all_of, "one"))[1:] == [1]
                continue
            with pytest.raises(StoreError, match=refusal) as refused:
                calling(url, ping)
            assert not isinstance(refused.value, Unavailable)
            assert "\n" not in str(refused.value)


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize(
    ("url", "typed", "has_password"),
    [
        ("redis://h:1/0", "redis://h:1/0", False),
        ("redis://u:pw@h:1/0?prefix=shop&db=1", "redis://u@h:1/0?db=1&prefix=shop", True),
        (
            "unix:///run/r.sock?aof=1&durability=fsync&password=p",
            "unix:///run/r.sock?aof=1&durability=fsync",
            True,
        ),
    ],
)
def test_an_address_is_shown_for_typing_without_its_password(url, typed, has_password):
    """`holdfast dev` prints commands with it."""
    address = parsed(url)
    assert (address.typed, address.has_password) == (typed, has_password)
