"""A real SDK of OpenTelemetry for each test, which keeps the spans in memory."""

from __future__ import annotations

import pytest
from opentelemetry import trace

from tests.engine.tracing.kit import Spans


@pytest.fixture
def spans(monkeypatch):
    """A tracer provider that records everything. It is taken back after the test."""
    return configured(monkeypatch)


@pytest.fixture
def configure(monkeypatch):
    """A function that sets up a provider with its own sampler, or other options."""
    return lambda **options: configured(monkeypatch, **options)


def configured(monkeypatch, **options):
    made = Spans(**options)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    return made
