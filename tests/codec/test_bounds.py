"""Limits in bytes: the size of texts, and slices of many items."""

from __future__ import annotations

import json

import pytest

from holdfast.bounds import sent_bytes, slices, text_bytes


@pytest.mark.parametrize(
    "value", ["", "plain", 'a "quoted" \\ word', "ünïcode ☃ 🌍", "\x01\x02\n", [{"a": '"'}]]
)
def test_a_text_is_measured_as_it_is_sent_inside_another(value: object) -> None:
    text = json.dumps(value)
    assert sent_bytes(text) == len(json.dumps(text)) - 2
    text = json.dumps(value, ensure_ascii=False)
    assert sent_bytes(text) == len(json.dumps(text, ensure_ascii=False).encode()) - 2
    assert text_bytes(text) == len(text.encode())
    assert text_bytes(None) == sent_bytes(None) == 0


def test_slices_end_by_bytes_and_by_count_and_hold_at_least_one() -> None:
    assert list(slices([5, 5, 1, 20, 1, 1, 1], int, 10, 2)) == [[5, 5], [1], [20], [1, 1], [1]]
    assert list(slices([], int, 10)) == []
    assert list(slices([10, 10], int, 10)) == [[10], [10]]
