"""The Grafana dashboard: the JSON document that Grafana imports."""

from __future__ import annotations

import json
from typing import Any

from .panels import ROWS, Panel

WIDTH = 24  # columns of Grafana's grid
HEIGHT, STAT_HEIGHT = 8, 4
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Return the document that Grafana imports."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(_row(title, y))
        y += 1
        stat = row[0].stat
        across = len(row) if stat else 3
        width, height = WIDTH // across, STAT_HEIGHT if stat else HEIGHT
        for number, panel in enumerate(row):
            place = {
                "x": number % across * width,
                "y": y + number // across * height,
                "w": width,
                "h": height,
            }
            panels.append(_panel(panel, place))
        y += -(-len(row) // across) * height
    for number, one in enumerate(panels, 1):
        one["id"] = number
    return {
        "title": "Holdfast",
        "uid": "holdfast",
        "description": "Runs, queue, workers, outbox and store of Holdfast.",
        "tags": ["holdfast"],
        "schemaVersion": 38,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": _variables()},
        "panels": panels,
    }


def dashboard_json() -> str:
    """Return the document as text."""
    return json.dumps(dashboard(), indent=2) + "\n"


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
        "hide": 0,
        "regex": "",
        "options": [],
    }
    return [
        source,
        _variable("store", "label_values(holdfast_store_up, store)"),
        _variable("type", 'label_values(holdfast_runs_started_total{store=~"$store"}, type)'),
    ]


def _variable(name: str, query: str) -> dict[str, Any]:
    # `.*` for all: it also finds metrics without that label.
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "regex": "",
        "options": [],
    }


def _row(title: str, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place}


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    defaults: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    if not panel.stat:
        defaults |= {"min": 0, "custom": {"fillOpacity": 10, "showPoints": "never", "spanNulls": True}}
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": SOURCE,
            "expr": one.expression,
            "legendFormat": one.legend or "__auto",
        }
        for at, one in enumerate(panel.queries)
    ]
    return {
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }
