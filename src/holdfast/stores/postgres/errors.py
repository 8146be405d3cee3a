"""What the server and the driver say, in our own words."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from holdfast.errors import (
    Conflict,
    HoldfastError,
    IllegalMove,
    SchemaMismatch,
    Unavailable,
    UnknownMessage,
    UnknownRun,
    UnknownSchedule,
    UnknownStep,
    UsageError,
)
from holdfast.lifecycle import Status

OURS = "HF"  # the first letters of the codes that our functions raise
_PLAIN: dict[str, type[HoldfastError]] = {
    "Conflict": Conflict,
    "UnknownStep": UnknownStep,
    "UsageError": UsageError,
    "SchemaMismatch": SchemaMismatch,
}


def translated(error: BaseException, where: str) -> HoldfastError:
    """Never a driver's error to a caller."""
    code, message, detail = told(error)
    if code.startswith(OURS) and detail:
        return refusal(message, detail)
    return Unavailable(f"{where}: {message or type(error).__name__}")


def told(error: BaseException) -> tuple[str, str, str]:
    """Code, message and detail of whatever driver raised it."""
    if isinstance(error, asyncpg.PostgresError):
        return error.sqlstate or "", str(error.args[0]) if error.args else "", getattr(error, "detail", None) or ""
    return "", str(error), ""


def refusal(message: str, detail: str) -> HoldfastError:
    """What a function of ours has refused."""
    said: dict[str, Any] = msgspec.json.decode(detail)
    name, data = said["error"], said["data"]
    match name:
        case "UnknownRun":
            return UnknownRun(UUID(data["run"]))
        case "IllegalMove":
            return IllegalMove(UUID(data["run"]), data["move"], Status(data["status"]), data.get("hint", ""))
        case "UnknownMessage":
            return UnknownMessage(data["id"])
        case "UnknownSchedule":
            return UnknownSchedule(data["name"])
        case _:
            return _PLAIN[name](message)
