"""The failing store of the kit, under the name that engine tests know it by."""

from __future__ import annotations

from holdfast.testing.faulty import (
    VERBS,
    Call,
    Fault,
    Faulty,
    break_down,
    delay,
    delay_reply,
    die_after,
    die_before,
    fail_before,
    lose_reply,
)

__all__ = [
    "VERBS",
    "Call",
    "Fault",
    "Faulty",
    "break_down",
    "delay",
    "delay_reply",
    "die_after",
    "die_before",
    "fail_before",
    "lose_reply",
]
