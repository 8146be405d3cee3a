"""API keys and signing keys: created, found, rotated, revoked."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.errors import Conflict, UnknownApiKey, UsageError
from holdfast.records import ANY, SECOND, ApiKey, Scope, moment

from .keys import ID, OTHER_ID, act, actions, audit, create, find, hashed, listed, new, revoke, rotate, use

DAY = 86400


@pytest.mark.spec("TEN-1")
def test_a_key_is_found_with_all_that_it_was_created_with(driver):
    """Only `find_key` shows the hash of its secret."""
    given = new(
        tenant="acme", name="worker", scopes=(Scope.WORK, Scope.METRICS), patterns=("shop.%", "a.b.v1"),
        expires_at=driver.clock.now + 5 * SECOND, rate=0.5, open_runs_max=7, by="eve",
    )  # fmt: skip
    made = driver.run(driver.store.create_key(given))
    assert made == ApiKey(
        id=ID, tenant="acme", name="worker", scopes=(Scope.WORK, Scope.METRICS),
        patterns=("shop.%", "a.b.v1"), expires_at=moment(driver.clock.now + 5 * SECOND), rate=0.5,
        open_runs_max=7, created_at=moment(driver.clock.now), created_by="eve",
    )  # fmt: skip
    assert find(driver) == replace(made, secret_hash=given.secret_hash)
    assert listed(driver, "acme") == [made]
    assert find(driver, OTHER_ID) is None


@pytest.mark.spec("TEN-1")
def test_a_key_belongs_to_its_tenant_and_lists_are_paged(driver):
    ids = [f"k{n:011}" for n in range(5)]
    for n, one in enumerate(ids):
        create(driver, one, name=f"n{n}", tenant="acme" if n % 2 else "beta")
    assert [key.id for key in listed(driver, ANY)] == ids
    assert [key.id for key in listed(driver, "acme")] == ids[1::2]
    assert [key.id for key in listed(driver, ANY, limit=2)] == ids[:2]
    assert [key.id for key in listed(driver, ANY, limit=2, after=ids[1])] == ids[2:4]
    assert [key.id for key in listed(driver, "beta", after=ids[0])] == ids[2::2]
    assert listed(driver, "acm") == listed(driver, limit=0) == []
    assert {(key.secret_hash, key.old_secret_hash) for key in listed(driver)} == {("", "")}


@pytest.mark.spec("TEN-1")
def test_an_id_and_the_name_of_a_live_key_are_taken(driver):
    """The same call again returns the key. A key that has ended leaves its name to another one."""
    made = create(driver)
    assert create(driver) == made
    for wrong in ({"name": "other"}, {"tenant": "acme"}, {"secret_hash": hashed("x")}):
        with pytest.raises(Conflict, match="another API key with the id"):
            create(driver, **wrong)
    with pytest.raises(Conflict, match=f"API key {ID} of this tenant has the name 'ci'"):
        create(driver, OTHER_ID)
    create(driver, "k00000000003", tenant="acme", expires_at=driver.clock.now + 10 * SECOND)
    driver.clock.turn(9)
    with pytest.raises(Conflict):
        create(driver, "k00000000004", tenant="acme")
    driver.clock.turn(1)
    create(driver, "k00000000004", tenant="acme")
    revoke(driver)
    create(driver, OTHER_ID)
    assert len(listed(driver)) == 4


@pytest.mark.spec("TEN-1")
def test_keys_created_at_once_share_no_name(driver):
    async def at_once():
        calls = [driver.store.create_key(new(f"k{n:011}")) for n in range(8)]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = driver.run(at_once())
    assert sum(isinstance(answer, ApiKey) for answer in answers) == 1
    assert {type(answer) for answer in answers} == {ApiKey, Conflict}
    assert len(listed(driver)) == 1


@pytest.mark.spec("TEN-1")
def test_a_rotated_key_has_two_secrets_for_a_while(driver):
    """The store keeps until when; a second rotation ends the oldest secret at once."""
    create(driver)
    first, now = find(driver), driver.clock.now
    answer = rotate(driver, overlap=60.0)
    found = find(driver)
    assert (found.secret_hash, found.old_secret_hash) == (hashed("new"), first.secret_hash)
    assert (found.rotated_at, found.old_secret_until) == (moment(now), moment(now + 60 * SECOND))
    assert answer == replace(found, secret_hash="", old_secret_hash="")
    driver.clock.turn(1)
    assert rotate(driver, overlap=60.0) == answer  # the same secret again
    rotate(driver, secret="newer")
    found = find(driver)
    assert (found.secret_hash, found.old_secret_hash) == (hashed("newer"), hashed("new"))
    assert found.old_secret_until == moment(driver.clock.now)
    rotate(driver, secret="newest", overlap=float("inf"))
    assert find(driver).old_secret_until.year > 2900


@pytest.mark.spec("TEN-1")
def test_a_revoked_key_stays_revoked(driver):
    create(driver)
    revoked = revoke(driver, by="eve")
    assert (revoked.revoked_at, revoked.revoked_by) == (moment(driver.clock.now), "eve")
    driver.clock.turn(5)
    assert revoke(driver, by="adam") == revoked
    with pytest.raises(Conflict, match="is revoked, for good"):
        rotate(driver)
    assert find(driver).secret_hash == new().secret_hash


@pytest.mark.spec("TEN-1", "TEN-2")
@pytest.mark.parametrize("id", [ID, OTHER_ID])
def test_another_tenants_key_is_as_unknown_as_none(driver, id):
    create(driver, tenant="acme")
    before = find(driver)
    for call in (rotate, revoke):
        with pytest.raises(UnknownApiKey, match=f"there is no API key {id}") as refused:
            call(driver, id, tenant="beta")
        assert refused.value.key_id == id
    assert find(driver) == before


@pytest.mark.spec("TEN-1")
def test_the_last_use_is_written_once_a_minute(driver):
    create(driver)
    create(driver, OTHER_ID, name="other")
    use(driver)
    use(driver, ID, ID, "k99999999999")
    first = moment(driver.clock.now)
    assert [key.last_used_at for key in listed(driver)] == [first, None]
    driver.clock.turn(59.9)
    use(driver, ID, OTHER_ID)
    second = moment(driver.clock.now)
    assert [key.last_used_at for key in listed(driver)] == [first, second]
    driver.clock.turn(0.1)
    use(driver, ID, OTHER_ID)
    assert [key.last_used_at for key in listed(driver)] == [moment(driver.clock.now), second]


@pytest.mark.spec("TEN-6")
def test_the_first_signing_key_is_the_same_for_all(driver):
    async def at_once():
        return await asyncio.gather(*(driver.store.signing_keys(bytes([n]) * 32) for n in range(8)))

    answers = set(driver.run(at_once()))
    assert len(answers) == 1
    ((key,),) = answers
    assert (len(key.secret), key.created_at) == (32, moment(driver.clock.now))
    assert "secret" not in repr(key)
    driver.clock.turn(1)
    assert driver.run(driver.store.signing_keys(b"x" * 32)) == (key,)


@pytest.mark.spec("TEN-6")
def test_a_new_signing_key_goes_in_front_and_two_are_kept(driver):
    def add(fresh):
        return driver.run(driver.store.add_signing_key(fresh))

    one, two, three = (bytes([n]) * 32 for n in range(3))
    assert [key.secret for key in add(one)] == [one]
    assert [key.secret for key in add(two)] == [two, one]
    assert [key.secret for key in add(two)] == [two, one]
    assert [key.secret for key in add(three)] == [three, two]
    found = driver.run(driver.store.signing_keys(one))
    assert [key.secret for key in found] == [three, two]
    assert found[0].id > found[1].id


@pytest.mark.spec("TEN-1")
def test_a_change_of_a_key_and_its_audit_row_share_a_commit(driver):
    """A call that changes nothing writes no row, and neither does one that is refused."""
    said = act("create_key", tenant="", key_name="eve")
    create(driver, tenant="acme", audit=said)
    create(driver, tenant="acme", audit=said)
    with pytest.raises(Conflict):
        create(driver, OTHER_ID, tenant="acme", audit=said)
    (entry,) = audit(driver, "acme")
    assert (entry.action, entry.target, entry.key_name, entry.tenant) == ("create_key", ID, "eve", "acme")
    for _ in range(2):
        rotate(driver, audit=act("rotate_key", tenant="", target="it"))
    for _ in range(2):
        revoke(driver, audit=act("revoke_key", tenant="ops"))
    with pytest.raises(Conflict):
        rotate(driver, secret="other", audit=act("rotate_key"))
    assert actions(driver) == ["revoke_key", "rotate_key", "create_key"]
    assert [(entry.tenant, entry.target) for entry in audit(driver)] == [
        ("ops", ID), ("acme", "it"), ("acme", ID)
    ]  # fmt: skip


@pytest.mark.spec("TTL-1", "TEN-1")
def test_a_key_that_ended_long_ago_is_purged(driver):
    """Live keys stay, however old they are."""
    create(driver)
    create(driver, OTHER_ID, name="short", expires_at=driver.clock.now + DAY * SECOND)
    create(driver, "k00000000003", name="long")
    revoke(driver)
    driver.clock.turn(90 * DAY - 1)
    assert driver.purge().api_keys == 0
    driver.clock.turn(1)
    assert driver.purge().api_keys == 1
    assert [key.id for key in listed(driver)] == [OTHER_ID, "k00000000003"]
    driver.clock.turn(DAY)
    assert (driver.purge().api_keys, driver.purge().total) == (1, 0)
    driver.clock.turn(10_000 * DAY)
    assert driver.purge().total == 0
    assert [key.id for key in listed(driver)] == ["k00000000003"]


@pytest.mark.spec("TTL-1", "TEN-3")
def test_one_key_always_stays(driver):
    """A server lets everyone in while its store has no key: that must never be so again."""
    create(driver)
    create(driver, OTHER_ID, name="short", expires_at=driver.clock.now + DAY * SECOND)
    revoke(driver)
    driver.clock.turn(1000 * DAY)
    assert (driver.purge().api_keys, driver.purge().total) == (1, 0)
    assert [key.id for key in listed(driver)] == [OTHER_ID]
    create(driver, "k00000000003", name="later")
    assert (driver.purge().api_keys, driver.purge().total) == (1, 0)
    assert [key.id for key in listed(driver)] == ["k00000000003"]


WRONG = [
    {"id": "short"}, {"id": "K00000000001"}, {"tenant": ""}, {"name": ""}, {"name": "x" * 256},
    {"scopes": ()}, {"scopes": (Scope.WORK, Scope.WORK)}, {"scopes": ("everything",)},
    {"patterns": ("%.x",)}, {"patterns": ("a.%",) * 101}, {"secret_hash": "plain"},
    {"secret_hash": hashed("x").upper()}, {"expires_at": 1 << 62}, {"rate": 0.0}, {"rate": 10_001.0},
    {"rate": float("nan")}, {"open_runs_max": 0}, {"open_runs_max": 10_001}, {"by": "a\0b"},
]  # fmt: skip


@pytest.mark.spec("TEN-1")
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_key_that_no_store_keeps_is_refused(driver, wrong):
    with pytest.raises(UsageError) as refused:
        create(driver, **wrong)
    assert hashed("x").upper() not in str(refused.value)
    assert listed(driver) == []


@pytest.mark.spec("TEN-1")
def test_bad_arguments_of_the_other_verbs_are_refused(driver):
    store = driver.store
    for call in (
        lambda: store.find_key(["abc"]),
        lambda: store.rotate_key("x", ANY, hashed("x")),
        lambda: store.rotate_key(ID, ANY, "x"),
        lambda: store.rotate_key(ID, ANY, hashed("x"), -1.0),
        lambda: store.rotate_key(ID, None, hashed("x")),
        lambda: store.revoke_key("x", ANY),
        lambda: store.revoke_key(ID, None),
        lambda: store.keys(None),
        lambda: store.use_keys(["x"]),
        lambda: store.use_keys([ID] * 1001),
        lambda: store.signing_keys(b"short"),
        lambda: store.add_signing_key("x" * 32),
        lambda: store.create_key(new(), "x"),
    ):
        with pytest.raises(UsageError):
            driver.run(call())
