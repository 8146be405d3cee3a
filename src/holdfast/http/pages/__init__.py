"""The dashboard: pages that the server renders, under `/ui/`. They work without script.

How a page is made
------------------
1. A function in a module of `views/`, which `views/__init__.py` imports:

       @page("/limits", title="Limits", scope=Scope.OPERATOR, menu="Limits")
       async def limits(call: PageCall) -> Shown:
           found = await call.ask("limits", query={"limit": 50, "cursor": call.one("cursor")})
           return Shown("limits.html", {"limits": found.items, "next": found.next})

   `call.ask` calls an operation of the HTTP API inside the process (`http/operation.py`, ids as in /docs),
   with its scopes, its redaction and its checks; fields that are None are left out. `call.one` and `call.all`
   read the query string, `call.path` the parameters of the path. Pages do not read the store themselves.
   Without `menu` the page is not in the navigation. `live=True`: its parts are sent again as they change.
2. A template in `templates/`, which begins with
   `{% extends "layout.html" %}{% import "macros.html" as ui with context %}` and fills the block `content`.
   All text is escaped. `ui.` has status, time, text (capped, "show all"), json, copy, cli, table, empty and
   pager; `sparkline` and `bars` draw. `page.link("/runs", status="failed")` makes a link: under the
   mount's prefix, and with the tenant that an operator looks at. CSP forbids inline styles and scripts.
3. What changes while one looks at it is a part with an id: `{% call page.part("rows") %}…{% endcall %}`.
   A shared reader calls the function of the page once a second for all who look at the same view, and sends
   the parts that differ. Rows of a list: one part for each, `page.part("row-" ~ id, "tr")`; rows that are new
   are announced by the script, not inserted. Nothing in a part depends on the present time (`ui.time(at,
   false)`), or it would be sent every second.

An action is a form that calls an operation: `{{ ui.act("cancel", "Cancel", {"run": run.id}) }}`, or with
fields `{% call ui.form("approve", {"run": run.id}) %}<textarea name="body.comment">…{% endcall %}`. Names of
fields are `path.NAME`, `query.NAME` and `body.NAME`; empty ones are left out. `confirm="…"` asks first. No
form is shown that the caller's scopes would refuse (`page.can("cancel")`). After the action the browser
goes back to the page (`back=`), which shows a message or one line about the error.

`call.actor` has the key's id, tenant and scopes; `call.actor.sees_values` is False without `payloads.read`.
"""

from .frame import Pages
from .page import Shown, page
from .pagecall import PageCall

__all__ = ["PageCall", "Pages", "Shown", "page"]
