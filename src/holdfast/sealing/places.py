"""The places that sealed values are bound to, so that no value opens in the place of another."""

from __future__ import annotations

from uuid import UUID

from .hooks import Where


def output(tenant: str, run: UUID, key: str) -> Where:
    return Where(tenant=tenant, run=run, field="output of step", name=key)


def ask(tenant: str, run: UUID, key: str) -> Where:
    return Where(tenant=tenant, run=run, field="ask", name=key)


def step_error(tenant: str, run: UUID, key: str) -> Where:
    return Where(tenant=tenant, run=run, field="error of step", name=key)


def run_error(tenant: str, run: UUID) -> Where:
    return Where(tenant=tenant, run=run, field="error")


def logged(tenant: str, run: UUID) -> Where:
    return Where(tenant=tenant, run=run, field="log")


def progressed(tenant: str, run: UUID) -> Where:
    return Where(tenant=tenant, run=run, field="progress")


def payload(tenant: str, id_: str, topic: str) -> Where:
    return Where(tenant=tenant, field="payload of event", name=id_, topic=topic)
