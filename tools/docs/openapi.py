"""The OpenAPI documents of the HTTP API and of the worker protocol, as files."""

from __future__ import annotations

import json

from holdfast.http.openapi import document


def page(part: str) -> str:
    """Return the document of one part."""
    return json.dumps(document("", part), indent=1, ensure_ascii=False) + "\n"
