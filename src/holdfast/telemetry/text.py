"""The text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from .recorder import Distribution, Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(families: Iterable[Family]) -> bytes:
    """Return the families as text. A metric without values has its description."""
    return "".join(line for family in families for line in _lines(family)).encode("utf-8", "replace")


def _lines(family: Family) -> Iterator[str]:
    metric = family.metric
    yield f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}\n# TYPE {metric.name} {metric.kind}\n"
    bounds = [*map(_number, metric.buckets), "+Inf"]
    for values, value in family.values.items():
        pairs = ",".join(f'{name}="{_escaped(one)}"' for name, one in zip(family.names, values, strict=True))
        if isinstance(value, Distribution):
            yield _distribution(metric.name, pairs, bounds, value)
        else:
            yield (
                f"{metric.name}{{{pairs}}} {_number(value)}\n"
                if pairs
                else f"{metric.name} {_number(value)}\n"
            )


def _distribution(name: str, pairs: str, bounds: list[str], value: Distribution) -> str:
    first, alone = (f"{pairs},", f"{{{pairs}}}") if pairs else ("", "")
    counts = list(accumulate(value.counts))
    lines = [
        f'{name}_bucket{{{first}le="{bound}"}} {count}\n' for bound, count in zip(bounds, counts, strict=True)
    ]
    return f"{''.join(lines)}{name}_sum{alone} {_number(value.total)}\n{name}_count{alone} {counts[-1]}\n"


def _escaped(value: str, *, quotes: bool = True) -> str:
    value = value.replace("\\", "\\\\").replace("\n", "\\n")
    return value.replace('"', '\\"') if quotes else value


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
