"""Signatures by Standard Webhooks: a receiver can check that a message is genuine, complete, recent and new.

https://www.standardwebhooks.com: HMAC-SHA256 over id, timestamp and body, with a secret that only the
receiver and this store know. Two secrets may be valid at once, so that a secret can be replaced without a
gap.
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
    """Make a new random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def check_secret(secret: str) -> str:
    """Check a secret and return it. The error does not contain the secret, because errors end up in logs."""
    if not BYTES_MIN <= len(_key(secret)) <= BYTES_MAX:
        raise UsageError(
            f"the webhook's secret is not `{PREFIX}` followed by {BYTES_MIN} to {BYTES_MAX} bytes in base64: "
            f"use the secret of the receiver, or leave it out to generate one"
        )
    return secret


def masked(secret: str) -> str:
    """Return the last characters of a secret: enough to tell two apart, too few to sign with."""
    return f"{PREFIX}…{secret[-4:]}"


def headers(id: str, at_seconds: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """Return the headers that a receiver verifies, with one signature for each secret."""
    signed = f"{id}.{at_seconds}.".encode() + body
    signatures = [
        base64.b64encode(hmac.new(_key(key), signed, hashlib.sha256).digest()).decode() for key in keys
    ]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at_seconds),
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }


def _key(secret: str) -> bytes:
    try:
        return (
            base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
        )
    except (binascii.Error, ValueError):
        return b""
