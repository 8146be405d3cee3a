"""`holdfast metrics`: the dashboard for Grafana and the alert rules for Prometheus."""

from __future__ import annotations

import click

from holdfast.cli.groups import CommandGroup


@click.group(cls=CommandGroup)
def metrics() -> None:
    """Print the Grafana dashboard, or the alert rules for Prometheus.

    The metrics themselves are served by `holdfast serve` under /metrics, and by `holdfast worker
    --metrics-port`.
    """


@metrics.command()
def dashboard() -> None:
    """Print the dashboard as JSON, which Grafana imports."""
    from holdfast.telemetry.dashboard import dashboard_json

    click.echo(dashboard_json(), nl=False)


@metrics.command()
def rules() -> None:
    """Print the alert rules as YAML, for `rule_files` of Prometheus."""
    from holdfast.telemetry.rules import rules_yaml

    click.echo(rules_yaml(), nl=False)
