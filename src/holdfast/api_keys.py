"""The text of an API key, `hf_<id>_<secret>`: how it is made, read and checked.

Only the id and the SHA-256 of the secret are stored. A secret has so many random bits that no salt is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from datetime import datetime

from .records import ApiKey

PREFIX = "hf"
ID_LENGTH, SECRET_LENGTH = 12, 32  # a character of a secret has nearly 6 bits: together 190
SIGNING_BYTES = 32
_ID, _SECRET = string.ascii_lowercase + string.digits, string.ascii_letters + string.digits
_KEY = re.compile(rf"{PREFIX}_([a-z0-9]{{{ID_LENGTH}}})_([A-Za-z0-9]{{{SECRET_LENGTH}}})")
_NONE = "-" * 64  # the hash of no secret


def make_id() -> str:
    """Make a new random id of a key."""
    return "".join(secrets.choice(_ID) for _ in range(ID_LENGTH))


def make_secret() -> str:
    """Make a new random secret."""
    return "".join(secrets.choice(_SECRET) for _ in range(SECRET_LENGTH))


def make_signing_key() -> bytes:
    """Make a new random key that signs cursors and tokens."""
    return secrets.token_bytes(SIGNING_BYTES)


def make_session_id() -> str:
    """Make a new random id of a session of the pages."""
    return secrets.token_urlsafe(32)


def is_id(text: str) -> bool:
    """Return True when the text has the form of an id."""
    return len(text) == ID_LENGTH and set(_ID).issuperset(text)


def composed(id: str, secret: str) -> str:
    """Return the text that a caller sends."""
    return f"{PREFIX}_{id}_{secret}"


def parse(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a key; None when the text is none."""
    found = _KEY.fullmatch(text)
    return None if found is None else (found[1], found[2])


def secret_hash(secret: str) -> str:
    """Return the hash of a secret, as stores keep it."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def matches_hash(key: ApiKey | None, found: str, now: datetime) -> bool:
    """Return True when the key is live and `found` is the hash of its present secret, or of its old one in
    the overlap.

    The same work is done for every hash, whether it is right, wrong or of no key: times say nothing.
    """
    present, old = (_NONE, _NONE) if key is None else (key.secret_hash or _NONE, key.old_secret_hash or _NONE)
    is_present, is_old = hmac.compare_digest(found, present), hmac.compare_digest(found, old)
    if key is None:
        return False
    old_counts = key.old_secret_until is not None and key.old_secret_until > now
    return (is_present or (is_old and old_counts)) and key.is_live(now)
