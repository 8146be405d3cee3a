"""Cron expressions in words."""

from __future__ import annotations

import pytest

from holdfast.shown.cron_words import cron_words


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0 * * * *", "every hour"),
        ("5 * * * *", "every hour at minute 5"),
        ("0,30 * * * *", "at minutes 0 and 30 of every hour"),
        ("30 3 * * *", "at 03:30 every day"),
        ("0 9,17 * * mon", "at 09:00 and 17:00, on Monday"),
        ("0 3 * * 1-5", "at 03:00, Monday to Friday"),
        ("0 3 * * 7", "at 03:00, on Sunday"),
        ("0 */6 * * *", "every 6 hours at minute 0"),
        ("*/10 9-17 * * MON-FRI", "every 10 minutes of the hours 9 to 17, Monday to Friday"),
        ("0 0 1 * *", "at 00:00, on day 1 of the month"),
        ("0 12 1,15 jan-mar *", "at 12:00, on day 1 and 15 of the month in January to March"),
        ("0 0 1 * 1", "at 00:00, on day 1 of the month or on Monday"),
        ("0 0 L * *", "at 00:00, on the last day of the month"),
        ("0 8 * * 1#2", "at 08:00, on the second Monday of the month"),
        ("0 8 * * 5L", "at 08:00, on the last Friday of the month"),
    ],
)
def test_common_expressions_have_words(cron, words):
    assert cron_words(cron) == words


@pytest.mark.parametrize(
    "cron", ["*/7 * * * *", "0 */5 * * *", "0 3 * * */2", "0 0 15w * *", "3", "", "a b c d e"]
)
def test_an_expression_without_simple_words_has_none(cron):
    assert cron_words(cron) == ""
