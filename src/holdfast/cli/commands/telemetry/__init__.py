"""The commands that show numbers: `stats` and `metrics`."""
