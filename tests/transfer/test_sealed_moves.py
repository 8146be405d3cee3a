"""Encrypted stores: values move as they are, are sealed anew, or are opened; and masked copies."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.codec import RESERVED, digest
from holdfast.errors import UsageError
from holdfast.records import ANY, NewRun
from holdfast.sealing import Compress, Encrypt, Sealed
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contract.driver import TYPE, done, error, listen, sleep
from holdfast.testing.contract.transfers import runs
from holdfast.transfer.moving import Mover
from tests.transfer.journey import furnish, held
from tests.transfer.test_moving import fresh, loop  # noqa: F401 - fixtures

pytestmark = pytest.mark.spec("STORE-6")
ONE, TWO = {"one": bytes(32)}, {"two": bytes(range(32))}


def sealed(clock, keys):
    return Sealed(MemoryStore(clock=clock), [Compress(min_bytes=50), Encrypt(keys)])


@pytest.fixture
def source(fresh, clock):  # noqa: F811
    driver = fresh(sealed(clock, ONE))
    driver.ids = furnish(driver)
    claim = held(driver, "heard")
    driver.emit(payload='{"news":"good"}')
    driver.park(claim, listen("first"), sleep("nap", seconds=9.0))
    driver.ids["heard"] = claim.id
    params = '{"card":4242}'
    driver.ids["keyed"] = driver.start(key="keyed", params=params, digest=digest(TYPE, params))
    claim = held(driver, "sad")
    driver.fail(claim, error=error("boom", "second"))
    driver.ids["sad"] = claim.id
    return driver


def read(driver):
    """Return what can be read of all runs."""
    found = {}
    for name, run in driver.ids.items():
        shown = driver.get(run)
        if shown is not None:
            steps = [(one.key, one.output, one.error_json, one.ask) for one in driver.steps(run)]
            notes = [(one.type, one.data.get("error")) for one in driver.trail(run) if one.type not in NOTES]
            found[name] = shown.params, shown.result, shown.error, shown.last_error, steps, notes
    return found


NOTES = {"imported", "leaving", "left", "returned", "arrived"}


@pytest.mark.parametrize("to", [ONE, TWO, None])
def test_values_are_the_same_at_the_target_with_its_own_keys(source, fresh, clock, to):  # noqa: F811
    store = MemoryStore(clock=clock) if to is None else sealed(clock, to)
    target = fresh(store)
    target.ids, before = source.ids, read(source)
    report = source.run(Mover(source.store, store, to="there", reseal=to is not ONE).run())
    assert (report.refused, report.verified) == ([], report.moved)
    assert read(target) == before
    inner = store.inner if to is not None else store
    texts = [str(part) for part in runs(fresh(inner))]
    assert any(RESERVED in text for text in texts) is (to is not None)
    params = '{"card":4242}'
    assert target.start(key="keyed", params=params, digest=digest(TYPE, params)) == source.ids["keyed"]
    target.retry_run(source.ids["sad"])
    target.checkpoint(target.take(source.ids["sad"], types=("shop.sad.v1",)), done("again"))
    (message,) = target.run(target.store.outbox())
    assert message.status == "pending"


def test_keys_must_fit_or_the_values_be_sealed_anew(source, fresh, clock):  # noqa: F811
    plain = fresh()
    with pytest.raises(UsageError, match="the target has no keys: open them"):
        Mover(source.store, plain.store, to="there")
    with pytest.raises(UsageError, match="the values are plain, and the target is encrypted"):
        Mover(plain.store, source.store, to="there", reseal=True)


def test_a_masked_copy_of_an_encrypted_store_is_readable_without_keys(source, fresh, tmp_path):  # noqa: F811
    source.run(App(source.store.inner, codec=[Compress(), Encrypt(ONE)]).export(tmp_path / "x", mask=True))
    target = fresh()
    target.run(App(target.store).import_(tmp_path / "x"))
    text = (tmp_path / "x").read_text()
    assert RESERVED not in text
    assert not [word for word in ("Ann", "t0p", "s3", "4242", "good") if word in text]
    assert target.get(source.ids["pending"]).params == {"name": "***", "n": [0, True]}
    assert target.run(target.store.schedules(ANY))


def test_a_file_without_keys_says_that_its_values_are_encrypted(fresh, source, clock, tmp_path):  # noqa: F811
    raw = source.store.inner
    source.run(App(raw).export(tmp_path / "a"))
    same, plain = fresh(sealed(clock, ONE)), fresh()
    report = same.run(App(same.store).import_(tmp_path / "a"))
    assert (report.imported, report.refused) == (len(source.ids), [])
    assert same.get(source.ids["keyed"]).params == {"card": 4242}
    plain.start()
    plain.run(App(plain.store).export(tmp_path / "b"))
    with pytest.raises(UsageError, match="holds plain values"):
        same.run(App(same.store).import_(tmp_path / "b"))


def test_a_file_without_keys_goes_on_as_it_was_begun(source, tmp_path):
    raw, path = source.store.inner, tmp_path / "a"
    source.run(App(raw).export(path))
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2])
    source.run(App(raw).export(path, resume=True))
    assert b'"sealed":true' in path.read_bytes().splitlines()[0]


@pytest.mark.parametrize("newest", ["sealed", "plain"])
def test_encrypted_values_are_masked_only_with_keys(source, tmp_path, newest):
    raw = source.store.inner
    if newest == "plain":
        for _ in range(30):
            source.run(raw.start([NewRun(id=source.id(), type=TYPE)]))
    with pytest.raises(UsageError, match="can be masked only with its keys"):
        source.run(App(raw).export(tmp_path / "a", mask=True))
    source.run(App(source.store).export(tmp_path / "b", mask=True))
    assert RESERVED not in (tmp_path / "b").read_text()
