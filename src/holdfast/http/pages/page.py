"""Pages: the one table of the dashboard's addresses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.records import Scope

if TYPE_CHECKING:
    from .pagecall import PageCall


class Shown(NamedTuple):
    """The answer of a page: a template and its data. title: instead of the page's own."""

    template: str
    data: dict[str, Any]
    title: str = ""
    status: int = 200


PageHandler = Callable[["PageCall"], Awaitable[Shown]]


class Page(NamedTuple):
    """One page.

    path: below `/ui`, with parameters as `{run}`. scopes: a visitor needs one of them. menu: its words in the
    navigation; empty: it is not there. live: its parts are sent again as they change, or a function says for
    a call whether they are.
    """

    path: str
    title: str
    scopes: tuple[Scope, ...]
    handler: PageHandler
    menu: str
    live: bool | Callable[[PageCall], bool]


async def _no_handler(_: PageCall) -> Shown:
    raise AssertionError("this page is not in the table")


def extra_page(path: str, title: str) -> Page:
    """Return a page that is not in the table: its answer is made where it is needed."""
    return Page(path, title, (), _no_handler, "", live=False)


PAGES: dict[str, Page] = {}
# Actions whose answer is shown, such as a new secret: the operation's id, and the page of its answer, which
# gets the answer and the address to go on to.
ANSWERS: dict[str, Callable[[Any, str], Shown]] = {}
# The line after an action, made from its answer. Without an entry it is the field `said` of the form.
SAID: dict[str, Callable[[Any], str]] = {}
# The order of the navigation. A page with other words comes last.
MENU = (
    "Overview", "Runs", "Approvals", "Workflows", "Schedules", "Limits", "Workers", "Outbox", "Events",
    "Keys", "Audit",
)  # fmt: skip


def page(
    path: str,
    *,
    title: str,
    scope: Scope | tuple[Scope, ...] = Scope.RUNS_READ,
    menu: str = "",
    live: bool | Callable[[PageCall], bool] = False,
) -> Callable[[PageHandler], PageHandler]:
    """Add a function to the table of pages."""

    def added(handler: PageHandler) -> PageHandler:
        assert path not in PAGES, path
        scopes = (scope,) if isinstance(scope, Scope) else scope
        PAGES[path] = Page(path, title, scopes, handler, menu, live)
        return handler

    return added


def all_pages() -> dict[str, Page]:
    """Return the whole table, by path."""
    from . import views  # noqa: PLC0415, F401 - the functions are added when their modules are imported

    return PAGES


def menu_pages() -> list[Page]:
    """Return the pages of the navigation, in their order."""
    listed = [one for one in all_pages().values() if one.menu]
    return sorted(listed, key=lambda one: MENU.index(one.menu) if one.menu in MENU else len(MENU))
