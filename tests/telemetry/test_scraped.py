"""A real Prometheus scrapes workers that are killed, and a server: its values are what really happened."""

from __future__ import annotations

import asyncio

import pytest

from verify.scraped.scraped import scraped


@pytest.mark.slow
@pytest.mark.spec("OPS-2")
@pytest.mark.usefixtures("prometheus_programs")
def test_scraped_values_agree_with_the_ledger_the_runs_and_a_recount():
    report = asyncio.run(scraped(runs=60, kills=4, every=1.2, workers=1, seed=1))
    report.show()
    assert [check.name for check in report.checks if not check.ok] == []
