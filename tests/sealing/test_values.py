"""One value through a codec: it opens where it belongs, with its key, and nowhere else."""

from __future__ import annotations

import base64
import json
import sys
import tracemalloc
import zlib
from uuid import UUID

import msgspec
import pytest

from holdfast.bounds import VALUE_BYTES
from holdfast.codec import MARK
from holdfast.errors import CannotOpen, NotSealed, UnknownKey, UsageError, WrongKey
from holdfast.sealing import Compress, Encrypt, Where
from holdfast.sealing.chain import Chain
from holdfast.sealing.envelope import reason, unopened, written
from tests.sealing.conftest import NEW, OLD, OTHER

HERE = Where(tenant="default", run=UUID(int=1), field="output of step", name="charge")
ELSEWHERE = {
    "another tenant": {"tenant": "acme"},
    "another run": {"run": UUID(int=2)},
    "another field": {"field": "error of step"},
    "another step": {"name": "ship"},
    "a topic": {"topic": "paid"},
}
TEXTS = ["null", "[]", '"ß 🐙 \\u2028"', '{"a":[1,2.0,-0.0,9007199254740993]}', f'"{"x" * 2000}"']


def encrypting(**options):
    return Chain([Encrypt({"new": NEW}, **options)])


def data(text):
    return json.loads(text)["holdfast.sealed"]


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "hooks", [[Compress()], [Encrypt({"new": NEW})], [Compress(), Encrypt({"new": NEW})]], ids=repr
)
def test_what_was_sealed_opens_to_the_very_text(text, hooks):
    """Exactly: the codec never sees a value, only its text."""
    chain = Chain(hooks)
    assert chain.open(chain.seal(text, HERE), HERE) == text


def test_a_sealed_value_is_json_that_says_what_it_is_and_nothing_of_what_it_holds():
    sealed = Chain([Compress(min_bytes=1), Encrypt({"new": NEW})]).seal('"secret secret secret"', HERE)
    assert sealed.startswith(MARK)
    assert data(sealed).keys() == {"v", "by", "data"}
    assert (data(sealed)["v"], data(sealed)["by"]) == (1, ["zlib", "aes256gcm:new"])
    assert b"secret" not in base64.b64decode(data(sealed)["data"])


def test_the_same_value_is_never_sealed_to_the_same_text():
    """Equal ciphertexts would tell that the values are equal."""
    assert len({encrypting().seal("1", HERE) for _ in range(100)}) == 100


@pytest.mark.parametrize("moved", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_value_that_was_moved_does_not_open(moved):
    """Each is bound to its tenant, run, field and name."""
    chain = encrypting()
    sealed = chain.seal('"mine"', HERE)
    with pytest.raises(WrongKey, match="moved here from elsewhere"):
        chain.open(sealed, msgspec.structs.replace(HERE, **moved))


@pytest.mark.parametrize("at", [0, 12, -1])
def test_a_value_that_was_altered_does_not_open(at):
    """In its nonce, its text or its tag."""
    seal = data(encrypting().seal('"100"', HERE))
    altered = bytearray(base64.b64decode(seal["data"]))
    altered[at] ^= 1
    with pytest.raises(WrongKey, match="altered"):
        encrypting().open(written(tuple(seal["by"]), bytes(altered)), HERE)


def test_a_value_that_was_cut_off_does_not_open():
    for left in (b"", b"short", bytes(12)):
        with pytest.raises(WrongKey):
            encrypting().open(written(("aes256gcm:new",), left), HERE)


def test_what_is_said_of_the_links_cannot_be_changed():
    """A value that was compressed first does not open as one that was not."""
    chain = Chain([Compress(min_bytes=1), Encrypt({"new": NEW})])
    sealed = chain.seal(f'"{"x" * 100}"', HERE)
    with pytest.raises(WrongKey):
        chain.open(sealed.replace('"zlib",', ""), HERE)


def test_a_key_that_is_not_here_is_named():
    sealed = encrypting().seal("1", HERE)
    with pytest.raises(UnknownKey, match="sealed under key 'new', and here are only 'old'") as told:
        Chain([Encrypt({"old": OLD})]).open(sealed, HERE)
    assert told.value.key == "new"
    assert "step 'charge' of run 00000000" in str(told.value)


def test_a_key_of_the_same_name_with_other_bytes_is_told_apart():
    sealed = encrypting().seal("1", HERE)
    with pytest.raises(WrongKey, match="the key's bytes are others"):
        Chain([Encrypt({"new": OTHER})]).open(sealed, HERE)


def test_after_a_rotation_old_values_open_and_new_ones_use_the_newest_key():
    old = Chain([Encrypt({"old": OLD})]).seal('"then"', HERE)
    rotated = Chain([Encrypt({"old": OLD, "new": NEW}, newest="new")])
    assert rotated.open(old, HERE) == '"then"'
    assert data(rotated.seal('"now"', HERE))["by"] == ["aes256gcm:new"]


@pytest.mark.parametrize("plain", ["1", '{"a":1}', written(("zlib",), zlib.compress(b"1"))])
def test_a_plain_value_is_refused_where_only_sealed_ones_belong(plain):
    """Else anyone with access to the database could insert values. Compressing them does not help, either."""
    with pytest.raises(NotSealed, match=r"accept_plain=True|not by aes256gcm"):
        Chain([Compress(), Encrypt({"new": NEW})]).open(plain, HERE)


def test_plain_values_are_taken_when_the_app_says_so():
    chain = Chain([Compress(), Encrypt({"new": NEW}, accept_plain=True)])
    assert chain.open('{"a":1}', HERE) == '{"a":1}'
    assert chain.open(written(("zlib",), zlib.compress(b"1")), HERE) == "1"
    assert chain.seal("1", HERE).startswith(MARK)


def test_compression_leaves_alone_what_is_short_or_gets_no_shorter():
    chain = Chain([Compress(min_bytes=50)])
    noise = json.dumps(base64.b85encode(bytes(x * x % 251 for x in range(60))).decode())
    assert chain.seal('"short"', HERE) == '"short"'
    assert chain.seal(noise, HERE) == noise
    assert len(chain.seal(f'"{"x" * 10_000}"', HERE)) < 200


def test_a_bomb_does_not_go_off():
    """A few bytes that unpack to far more than a value may have take no memory to speak of."""
    bomb = written(("zlib",), zlib.compress(bytes(32 * VALUE_BYTES), 9))
    tracemalloc.start()
    try:
        with pytest.raises(CannotOpen, match=r"unpacks to more than 4,194,304 bytes"):
            Chain([Compress()]).open(bomb, HERE)
        assert tracemalloc.get_traced_memory()[1] < 3 * VALUE_BYTES
    finally:
        tracemalloc.stop()


def test_the_largest_value_there_may_be_survives_compression():
    text = f'"{"x" * (VALUE_BYTES - 2)}"'
    chain = Chain([Compress()])
    assert chain.open(chain.seal(text, HERE), HERE) == text


@pytest.mark.parametrize("packed", [b"no zlib", zlib.compress(b'"whole"')[:-3], b""])
def test_damaged_compression_is_told(packed):
    with pytest.raises(CannotOpen, match="is damaged"):
        Chain([Compress()]).open(written(("zlib",), packed), HERE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{MARK}:", "damaged"),
        (f'{MARK}:{{"v":2,"by":["aes256gcm:new"],"data":""}}}}', "newer than this version"),
        (f'{MARK}:{{"v":1,"by":["aes256gcm:new"],"data":"?"}}}}', "damaged"),
        (written(("rot13",), b""), "which this app's codec does not know"),
        (written(("zlib",), zlib.compress(b"\xff")), "holds no text"),
    ],
)
def test_an_envelope_that_cannot_be_read_is_told(text, said):
    with pytest.raises(CannotOpen, match=said):
        Chain([Compress(), Encrypt({"new": NEW}, accept_plain=True)]).open(text, HERE)


class Faulty(Compress):
    """A hook of a user's that cannot do its work now."""

    def open(self, how, value, where):
        raise OSError("no answer from the key server")


def test_a_hook_that_fails_is_a_value_that_does_not_open():
    """Whatever it raises: all other values of that answer are opened."""
    sealed = Chain([Compress(min_bytes=1)]).seal(f'"{"x" * 100}"', HERE)
    with pytest.raises(CannotOpen, match="the hook 'zlib' failed with OSError"):
        Chain([Faulty()]).open(sealed, HERE)


@pytest.mark.parametrize(
    "why", [UnknownKey("no key", "k"), WrongKey("no", "k"), NotSealed("no"), CannotOpen("no")]
)
@pytest.mark.parametrize("text", ['{"a":1}', written(("aes256gcm:k",), b"x"), f"{MARK} broken"])
def test_what_did_not_open_is_handed_on_with_the_reason_in_it(why, text):
    """It is JSON with the same mark, so that it is not taken for a value."""
    told = unopened(why, text)
    json.loads(told)
    assert told.startswith(MARK)
    found = reason(told, "it")
    assert (type(found), str(found), found.key) == (type(why), str(why), why.key)


def test_a_digest_is_keyed_and_bound_to_its_place():
    """A bare digest would let anyone try what the params may have been, and see which runs have the same."""
    (digest,) = encrypting().digests("d" * 64, HERE)
    assert [digest] == encrypting().digests("d" * 64, HERE) != ["d" * 64]
    assert [digest] != encrypting().digests("d" * 64, msgspec.structs.replace(HERE, name="other"))
    assert [digest] != Chain([Encrypt({"new": OLD})]).digests("d" * 64, HERE)
    assert Chain([Compress()]).digests("d" * 64, HERE) == ["d" * 64]
    rotated = Encrypt({"new": NEW, "other": OTHER}, newest="other", accept_plain=True)
    assert Chain([Compress(), rotated]).digests("d" * 64, HERE)[1:] == [digest, "d" * 64]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Encrypt({}), "takes keys by their ids"),
        (lambda: Encrypt({"a": b"short"}), "has 5 bytes, not 32"),
        (lambda: Encrypt({"a": "not base64!"}), "is no base64"),
        (lambda: Encrypt({"a": 32}), "is of type int, not bytes or base64 text"),
        (lambda: Encrypt({"a b": NEW}), "letters, digits"),
        (lambda: Encrypt({"a": NEW, "b": OLD}), "say with newest= which one seals: 'a', 'b'"),
        (lambda: Encrypt({"a": NEW}, newest="b"), "no such key, only 'a'"),
        (lambda: Compress(level=10), "0 to 9"),
        (lambda: Chain([]), "at least one hook"),
        (lambda: Chain([Compress(), Compress()]), "none twice"),
    ],
)
def test_a_codec_that_cannot_be_meant_is_refused(make, said):
    with pytest.raises(UsageError, match=said):
        make()


def test_keys_come_as_text_and_from_the_environment(monkeypatch):
    """The first one named is the newest."""
    new, old = Encrypt.new_key(), Encrypt.new_key()
    assert len(base64.b64decode(new)) == 32
    assert new != old
    monkeypatch.setenv("HOLDFAST_KEYS", f"2026-11={new}, 2026-05={old}")
    codec = Encrypt.from_env()
    assert repr(codec) == "Encrypt('2026-11', '2026-05'; newest='2026-11')"
    sealed = Chain([Encrypt({"2026-05": old})]).seal("1", HERE)
    assert Chain([codec]).open(sealed, HERE) == "1"


@pytest.mark.parametrize(
    ("said", "told"),
    [("", "is not set"), ("nonsense", "each key is id=base64"), ("a=x a=y", "names a key twice")],
)
def test_keys_in_the_environment_that_cannot_be_meant_are_refused(said, told, monkeypatch):
    monkeypatch.setenv("HOLDFAST_KEYS", said)
    with pytest.raises(UsageError, match=told):
        Encrypt.from_env()


def test_without_the_library_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(UsageError, match=r"pip install cryptography"):
        Encrypt({"new": NEW})


@pytest.mark.parametrize("forgotten", ["id", "mapping"])
def test_a_key_given_in_the_wrong_place_is_not_shown(forgotten, monkeypatch):
    """Messages end in logs; a key must not."""
    key = Encrypt.new_key()
    monkeypatch.setenv("HOLDFAST_KEYS", key)
    with pytest.raises(UsageError) as refused:
        Encrypt(key) if forgotten == "mapping" else Encrypt.from_env()
    assert not any(part in str(refused.value) for part in (key, key[:8], "'" + key[0] + "', '"))
    with pytest.raises(UsageError) as refused:
        Encrypt({key: key})
    assert key[:8] not in str(refused.value)
