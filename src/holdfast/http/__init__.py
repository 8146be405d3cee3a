"""The HTTP API: management of runs for programs in any language, with API keys and tenants.

`asgi(app)` makes an ASGI application that can be mounted under any prefix. `holdfast serve` runs it.
The table of all operations is in `operation.py`; their functions are in `api/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.engine.app.client import StoreClient

    from .server import HttpApi

EXTRA = (
    "the HTTP API needs the extra `http` (httptools, jinja2, starlette, uvicorn): "
    "pip install '.[http]' in a clone of Holdfast"
)


def asgi(app: StoreClient, *, open: bool = False, **options: Any) -> HttpApi:
    """Make an ASGI application of the HTTP API of an app; it can be mounted under any prefix.

    Each request needs an API key of the store. open=True lets everyone in as an operator: use it only behind
    a login of your own.
    """
    with extra_installed():
        from .server import asgi as made
    return made(app, open=open, **options)


@contextmanager
def extra_installed() -> Iterator[None]:
    """Explain an import that failed because the extra is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {
            "httptools",
            "starlette",
            "uvicorn",
            "anyio",
            "jinja2",
            "markupsafe",
        }:
            raise
        raise UsageError(EXTRA) from None
