"""Idempotency keys as they are stored, and as they are shown."""

from __future__ import annotations

from holdfast.records import DEFAULT_TENANT

KEY_SEPARATOR = "\x1f"


def stored_key(tenant: str, key: str | None) -> str | None:
    """The default tenant's keys as given, others' scoped: one plain unique index serves all."""
    return key if key is None or tenant == DEFAULT_TENANT else f"{tenant}{KEY_SEPARATOR}{key}"


def shown_key(tenant: str, key: str | None) -> str | None:
    """The bare key."""
    return key if key is None or tenant == DEFAULT_TENANT else key.partition(KEY_SEPARATOR)[2]
