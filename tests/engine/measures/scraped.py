"""Reads the text of a scrape with the parser of prometheus_client."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from holdfast.telemetry.text import text


def parsed(exposed):
    """Return the value of each sample by its name and labels: ("runs", "a") for runs{type="a"}."""
    found = {}
    for family in text_string_to_metric_families(exposed.decode()):
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in found, "a sample is there twice"
            found[key] = sample.value
    return found


def values(recorder):
    """Return the values of a recorder, without the prefix of the names and without buckets."""
    found = parsed(text(recorder.families()))
    return {
        (name.removeprefix("holdfast_"), *labels): value
        for (name, *labels), value in found.items()
        if not name.endswith("_bucket")
    }
