"""The names of attributes: `holdfast.*`, and those of the messaging conventions of OpenTelemetry that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.records import Error

RUN_ID = "holdfast.run.id"
RUN_TYPE = "holdfast.run.type"
VERSION = "holdfast.workflow.version"
TENANT = "holdfast.tenant"
WORKER = "holdfast.worker"
ATTEMPT = "holdfast.run.attempt"
FENCE = "holdfast.run.fence"
OUTCOME = "holdfast.outcome"
ERROR_KIND = "holdfast.error.kind"
ERROR_TYPE = "error.type"
STEP = "holdfast.step.name"
STEP_ATTEMPT = "holdfast.step.attempt"
WAIT_KIND = "holdfast.wait.kind"
SINK = "holdfast.sink"
MESSAGE_ATTEMPT = "holdfast.message.attempt"
DELAY = "holdfast.retry.delay"

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
BATCH = "messaging.batch.message_count"

Attributes = dict[str, Any]


def messaging(operation: str, kind: str, destination: str) -> Attributes:
    """Return the attributes of the messaging conventions."""
    return {SYSTEM: "holdfast", OPERATION: operation, OPERATION_TYPE: kind, DESTINATION: destination}


def of_type(type_: str) -> Attributes:
    """Return the attributes of a workflow's type: `shop.order.v2` has version 2."""
    version = type_.rpartition(".v")[2]
    return {RUN_TYPE: type_, VERSION: int(version)} if version.isdecimal() else {RUN_TYPE: type_}


def of_error(error: Error) -> Attributes:
    """Return the kind and the type of an error. Its message may have values in it."""
    return {ERROR_KIND: error.kind, ERROR_TYPE: error.type or error.kind}
