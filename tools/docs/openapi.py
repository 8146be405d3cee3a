"""The OpenAPI document of the HTTP API, as a file."""

from __future__ import annotations

import json

from holdfast.http.openapi import document


def page() -> str:
    """Return the document."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
