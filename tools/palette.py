"""Smaller PNG files: a picture of a page with 256 colours looks the same and has half the bytes."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

COLOURS = 256
EXACT = 96  # of them are the most frequent colours as they are: surfaces, borders, text
SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}  # by the colour type: RGB, and with alpha

Colour = tuple[int, int, int]


class Box(NamedTuple):
    """Colours that become one. error: how far they are from their mean; axis: along which the most."""

    colours: list[tuple[Colour, int]]
    mean: tuple[float, float, float]
    error: float
    axis: int


def smaller(png: bytes) -> bytes:
    """Return a PNG of 8 bits per channel, without transparency, as one with a palette."""
    width, height, pixels = _decoded(png)
    counts = Counter(pixels)
    places = _palette(counts)
    table = sorted(set(places.values()))
    index = {colour: place for place, colour in enumerate(table)}
    byte_of = {colour: index[chosen] for colour, chosen in places.items()}
    lines = bytes(byte_of[one] for one in pixels)
    raw = b"".join(b"\0" + lines[at : at + width] for at in range(0, width * height, width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", bytes(one for colour in table for one in colour)),
              (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))  # fmt: skip
    return SIGNATURE + b"".join(_chunk(*one) for one in chunks)


def _palette(counts: Counter[Colour]) -> dict[Colour, Colour]:
    """Return for each colour the one of the palette that stands for it."""
    ordered = [one for one, _ in counts.most_common()]
    if len(ordered) <= COLOURS:
        return {one: one for one in ordered}
    chosen = {one: one for one in ordered[:EXACT]}
    boxes = [_box([(one, counts[one]) for one in ordered[EXACT:]])]
    while len(boxes) < COLOURS - EXACT:
        widest = max(boxes, key=lambda one: one.error)
        if widest.error == 0:
            break
        boxes.remove(widest)
        axis, middle = widest.axis, widest.mean[widest.axis]
        boxes += (
            _box([one for one in widest.colours if (one[0][axis] <= middle) is low]) for low in (True, False)
        )
    for box in boxes:
        red, green, blue = (round(one) for one in box.mean)
        chosen |= {one: (red, green, blue) for one, _ in box.colours}
    return chosen


def _box(colours: list[tuple[Colour, int]]) -> Box:
    total = sum(count for _, count in colours)
    sums = [sum(colour[axis] * count for colour, count in colours) for axis in range(3)]
    mean = (sums[0] / total, sums[1] / total, sums[2] / total)
    errors = [sum(count * (colour[axis] - mean[axis]) ** 2 for colour, count in colours) for axis in range(3)]
    largest = max(errors) if len(colours) > 1 else 0.0
    return Box(colours, mean, largest, errors.index(max(errors)))


def _decoded(png: bytes) -> tuple[int, int, list[Colour]]:
    """Return width, height and pixels."""
    assert png.startswith(SIGNATURE), "no PNG"
    parts = list(_chunks(png))
    width, height, depth, type_, *_, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert depth == 8, depth
    assert not interlaced
    step = CHANNELS[type_]
    raw = zlib.decompress(b"".join(data for name, data in parts if name == b"IDAT"))
    pixels: list[Colour] = []
    above = bytearray(width * step)
    for at in range(0, height * (width * step + 1), width * step + 1):
        above = _line(raw[at], bytearray(raw[at + 1 : at + 1 + width * step]), above, step)
        pixels += zip(above[0::step], above[1::step], above[2::step], strict=True)
    return width, height, pixels


def _line(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    """Return a line of bytes without its filter (https://www.w3.org/TR/png/#9Filters)."""
    if kind == 1:
        for n in range(step, len(line)):
            line[n] = line[n] + line[n - step] & 255
    elif kind == 2:
        for n, up in enumerate(above):
            line[n] = line[n] + up & 255
    elif kind:
        for n, up in enumerate(above):
            left, corner = (line[n - step], above[n - step]) if n >= step else (0, 0)
            line[n] = line[n] + ((left + up) // 2 if kind == 3 else _nearest(left, up, corner)) & 255
    return line


def _nearest(left: int, up: int, corner: int) -> int:
    """Return the neighbour that is nearest to left + up - corner."""
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += size + 12


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
