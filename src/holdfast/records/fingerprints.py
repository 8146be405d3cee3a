"""The fingerprint of an error: type, step and the beginning of the message, on one line.

Runs that failed alike have the same fingerprint, and lists find them by it. Every store makes the same text:
`failed_as` in stores/sqlite/reads.sql, and the function `fingerprint` on Postgres.
"""

from __future__ import annotations

from .units import Json
from .unreadable import read_object

TYPE_MAX = 100  # characters of the type, of the step
STEP_MAX = 200
FILTERS_MAX = 20  # labels, or errors, in one filter
MESSAGE_MAX = 200  # characters of the message
SEALED = "fingerprint"  # the field of a sealed error that holds a keyed digest in place of the text
_ONE_LINE = str.maketrans("\n\r\t", "   ")


def fingerprint(error: Json | None) -> str | None:
    """Return the fingerprint of an error; None if there is none. A sealed error brings its own."""
    if error is None:
        return None
    found = {name: value for name, value in read_object(error).items() if isinstance(value, str)}
    if SEALED in found:
        return found[SEALED]
    kind, message = found.get("type") or found.get("kind", ""), found.get("message", "")
    kind, message = cause(kind, message)
    step = f" at {found['step'][:STEP_MAX]}" if "step" in found else ""
    return f"{kind[:TYPE_MAX]}{step}: {message[:MESSAGE_MAX]}".translate(_ONE_LINE)


def cause(type_: str, message: str) -> tuple[str, str]:
    """Return type and message of the exception that made a step fail; of another error, as they are.

    The error of a step that failed is inside its message: step 'charge' failed: ValueError: no card
    """
    if type_ != "StepFailed":
        return type_, message
    inner, colon, said = message.partition("' failed: ")[2].partition(": ")
    return (inner, said) if colon else (type_, message)
