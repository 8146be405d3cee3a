"""The text of an API key: made, read and checked."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast import api_keys
from holdfast.records import ApiKey, Scope

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECRET, OLD = "a" * 32, "b" * 32
KEY = ApiKey(
    id="k00000000001", tenant="acme", name="ci", scopes=(Scope.WORK,), created_at=NOW,
    secret_hash=api_keys.secret_hash(SECRET),
)  # fmt: skip


@pytest.mark.spec("TEN-1")
def test_a_key_is_read_as_it_was_made():
    id_, secret = api_keys.make_id(), api_keys.make_secret()
    assert api_keys.parse(api_keys.composed(id_, secret)) == (id_, secret)
    assert api_keys.composed(id_, secret) == f"hf_{id_}_{secret}"
    assert api_keys.is_id(id_)


@pytest.mark.spec("TEN-1")
def test_secrets_have_many_random_bits():
    """Each character is one of 62, and none is preferred."""
    made = [api_keys.make_secret() for _ in range(500)]
    assert len(set(made)) == 500
    assert len({char for secret in made for char in secret}) == 62
    assert api_keys.SECRET_LENGTH * math.log2(62) >= 160


@pytest.mark.parametrize(
    "text",
    ["", "hf", "hf__", "hf_k00000000001_short", f"hf_K00000000001_{SECRET}", f"hf_k0000000001_{SECRET}",
     f"hf_k00000000001_{SECRET}x", f"hf_k00000000001_{SECRET}\n", f"xx_k00000000001_{SECRET}",
     f" hf_k00000000001_{SECRET}", "hf_k00000000001_" + "é" * 32, "x" * 100_000],
)  # fmt: skip
def test_other_texts_are_no_keys(text):
    assert api_keys.parse(text) is None


def matches(key, secret, now):
    return api_keys.matches_hash(key, api_keys.secret_hash(secret), now)


@pytest.mark.spec("TEN-1")
def test_only_the_secret_of_a_live_key_matches():
    assert matches(KEY, SECRET, NOW)
    assert not matches(KEY, OLD, NOW)
    assert not matches(None, SECRET, NOW)
    assert not matches(replace(KEY, secret_hash=""), "", NOW)
    assert not matches(replace(KEY, revoked_at=NOW), SECRET, NOW)
    expiring = replace(KEY, expires_at=NOW)
    assert matches(expiring, SECRET, NOW - timedelta(microseconds=1))
    assert not matches(expiring, SECRET, NOW)


@pytest.mark.spec("TEN-1")
def test_an_old_secret_matches_until_its_overlap_ends():
    rotated = replace(KEY, old_secret_hash=api_keys.secret_hash(OLD), old_secret_until=NOW)
    before = NOW - timedelta(microseconds=1)
    assert matches(rotated, OLD, before)
    assert matches(rotated, SECRET, before)
    assert not matches(rotated, OLD, NOW)
    assert matches(rotated, SECRET, NOW)
    assert not matches(replace(rotated, revoked_at=before), OLD, before)


@pytest.mark.spec("TEN-1")
def test_the_same_work_is_done_for_every_secret(monkeypatch):
    """Two comparisons in constant time, also for a key that does not exist."""
    compared = []
    real = api_keys.hmac.compare_digest
    monkeypatch.setattr(
        api_keys.hmac, "compare_digest", lambda one, two: compared.append(len(one + two)) or real(one, two)
    )
    for key in (None, KEY, replace(KEY, revoked_at=NOW)):
        for secret in (SECRET, OLD):
            matches(key, secret, NOW)
    assert compared == [128] * 12
