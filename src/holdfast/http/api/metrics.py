"""The metrics of the store and of this process, as Prometheus reads them."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.arguments import ALL_TENANTS
from holdfast.http.call import Call
from holdfast.http.operation import operation
from holdfast.records import Scope
from holdfast.telemetry.prometheus import exposition
from holdfast.telemetry.text import CONTENT_TYPE

from .fields import OneTenant

TAG = "Metrics"


class MetricsQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """tenants: show runs by tenant; only for keys with the scope `operator`."""

    tenants: bool = False


@operation("GET", "/metrics", tag=TAG, scope=(Scope.METRICS, Scope.OPERATOR), text=CONTENT_TYPE)
async def metrics(call: Call, query: MetricsQuery) -> Response:
    """Return the metrics as text for Prometheus.

    A key with the scope `operator` gets those of the whole store and of this process, or of the one tenant
    that it names; any other key gets those of its tenant's runs.
    """
    if query.tenants:
        call.need(Scope.OPERATOR)
    asked = query.tenant
    if asked is None and call.actor.has(Scope.OPERATOR):
        asked = ALL_TENANTS  # a scrape is of everything that its key may see
    call.client(asked)
    whole = call.tenant == ALL_TENANTS
    kind, text = await exposition(call.api.client, tenant=call.scope, tenants=query.tenants, process=whole)
    return Response(text, media_type=kind)
