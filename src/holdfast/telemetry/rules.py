"""The alert rules for Prometheus. They are written by hand, in `rules.yaml`."""

from __future__ import annotations

from pathlib import Path

RULES = Path(__file__).with_name("rules.yaml")


def rules_yaml() -> str:
    """Return the rules as the text of a file for Prometheus."""
    return RULES.read_text("utf-8")
