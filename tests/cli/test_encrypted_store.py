"""The command line before a store whose values are sealed: with the keys, without them, with wrong ones."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast import App, Compress, Encrypt, RunFilter

KEY = Encrypt.new_key()
KEYS = {"HOLDFAST_KEYS": f"2026-11={KEY}"}


def played(url):
    """A worker that has the key does what there is to do."""
    app = App(url, codec=Encrypt({"2026-11": KEY}))

    @app.workflow("shop.order.v1")
    async def order(ctx, params):
        ctx.log(f"card {params['card']}")
        return (await ctx.await_event("paid")).payload

    async def work():
        async with app.worker():
            (run,) = await app.list()
            await app.result(run.id, 20)
        await app.close()

    asyncio.run(work())


@pytest.mark.spec("OPS-5")
@pytest.mark.slow
def test_with_the_keys_in_the_environment_commands_encrypt_and_decrypt(cli_, url):
    """An app that encrypts can execute what is started and emitted here; commands show it in clear."""
    run = cli_("start", "shop.order.v1", '{"card": "4111 1111"}', env=KEYS).stdout.strip()
    cli_("emit", "paid", '{"by": "Ada"}', env=KEYS)
    played(url)
    shown = cli_("show", run, env=KEYS).stdout
    assert '"4111 1111"' in shown
    assert "Ada" in shown
    assert json.loads(cli_("result", run, env=KEYS).stdout) == {"by": "Ada"}
    assert "log info: card 4111 1111" in cli_("trail", run, env=KEYS).stdout


@pytest.mark.parametrize(
    "codec", [Encrypt({"2026-11": KEY}), [Compress(min_bytes=1), Encrypt({"2026-11": KEY})]], ids=repr
)
def test_a_value_that_a_command_encrypts_can_be_read_by_every_app_with_the_key(codec, cli_, url):
    """Whether the app compresses or not; and what it has compressed is shown."""
    long = "x" * 600
    run = cli_("start", "shop.order.v1", json.dumps(long), env=KEYS).stdout.strip()
    app = App(url, codec=codec)

    async def read_and_start():
        assert (await app.get(run)).params == long
        return str((await app.start("shop.order.v1", "y" * 600)).id)

    assert "yyyy" in cli_("show", asyncio.run(finished(app, read_and_start())), env=KEYS).stdout


async def finished(app, work):
    try:
        return await work
    finally:
        await app.close()


def test_without_the_keys_everything_is_shown_as_it_is(cli_, url):
    run = cli_("start", "shop.order.v1", '{"card": "4111 1111"}', env=KEYS).stdout.strip()
    shown = cli_("show", run)
    assert shown.exit_code == 0
    assert "aes256gcm:2026-11" in shown.stdout
    assert "4111 1111" not in shown.stdout


def test_invalid_keys_are_refused_in_one_line(cli_):
    cli_.start("shop.order.v1")
    assert "each key is id=base64" in cli_.refused("ls", code=2, env={"HOLDFAST_KEYS": "nonsense"})


@pytest.mark.parametrize("command", [("emit", "paid", '"in plain"'), ("start", "shop.order.v1", "1")])
def test_nothing_is_written_in_plain_into_an_encrypted_store(command, cli_):
    """An app that encrypts would not take it, and runs that await such an event would go back for ever."""
    cli_("start", "shop.order.v1", env=KEYS)
    assert "are encrypted (aes256gcm:2026-11): set HOLDFAST_KEYS" in cli_.refused(*command, code=2)
    assert cli_(*command, env=KEYS).exit_code == cli_(*command, "--plain").exit_code == 0


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_no_bulk_operation_is_started_in_plain_in_an_encrypted_store(verb, cli_):
    cli_("start", "shop.order.v1", env=KEYS)
    words = (verb, "--where", "type=shop.order", "--yes", "--no-wait")
    assert cli_.refused(*words, code=2).endswith("(aes256gcm:2026-11): set HOLDFAST_KEYS")
    assert cli_(*words, env=KEYS).exit_code == 0


def test_a_plain_run_of_the_engine_does_not_make_a_store_plain(cli_, url):
    cli_("start", "shop.order.v1", env=KEYS)
    app = App(url)
    asyncio.run(finished(app, app.bulk.cancel(RunFilter())))
    assert "are encrypted" in cli_.refused("start", "shop.order.v1", code=2)


def test_values_go_uncompressed_into_a_store_that_is_only_compressed(cli_, url):
    app = App(url, codec=Compress(min_bytes=1))
    asyncio.run(finished(app, app.start("shop.order.v1", "x" * 100)))
    assert cli_("emit", "paid").exit_code == cli_("start", "shop.order.v1").exit_code == 0
