"""Standard Webhooks: a receiver can tell that a message is ours, whole, recent, and not seen before.

https://www.standardwebhooks.com: HMAC-SHA256 over id, timestamp and body, keyed by a secret that only the
receiver and this store know. Two secrets may be live at once, so that one can be replaced without a gap.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from holdfast.errors import UsageError

PREFIX = "whsec_"
BYTES_MIN, BYTES_MAX = 24, 64
_BYTES = 32


def make_secret() -> str:
    """A fresh one."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def check_secret(secret: str) -> str:
    """The secret itself. What is wrong with it is said without it: errors end up in logs."""
    if not BYTES_MIN <= len(_key(secret)) <= BYTES_MAX:
        raise UsageError(
            f"the webhook's secret is no `{PREFIX}` and {BYTES_MIN} to {BYTES_MAX} bytes in base64: "
            f"take the one that the receiver gives, or leave it out to have one made"
        )
    return secret


def masked(secret: str) -> str:
    """Enough to tell two apart, and not to sign with."""
    return f"{PREFIX}…{secret[-4:]}"


def headers(id: str, at_seconds: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """What a receiver verifies; one signature for each secret."""
    signed = f"{id}.{at_seconds}.".encode() + body
    marks = [base64.b64encode(hmac.new(_key(key), signed, hashlib.sha256).digest()).decode() for key in keys]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at_seconds),
        "webhook-signature": " ".join(f"v1,{mark}" for mark in marks),
    }


def _key(secret: str) -> bytes:
    try:
        return (
            base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
        )
    except (binascii.Error, ValueError):
        return b""
