"""Pictures with a palette: the same picture in fewer bytes."""

from __future__ import annotations

import struct
import zlib

import pytest

from tools.palette import COLOURS, SIGNATURE, _chunk, _chunks, _decoded, smaller

WIDTH, HEIGHT = 64, 32


def png_of(pixels, kind=0, step=3):
    """Return a PNG of these pixels; kind: the filter of its lines."""
    lines = [b"".join(bytes((*one, 255)[:step]) for one in pixels[at : at + WIDTH])
             for at in range(0, len(pixels), WIDTH)]  # fmt: skip
    above, raw = bytes(WIDTH * step), b""
    for line in lines:
        raw += bytes([kind]) + bytes(
            one
            - guess(kind, line[n - step] if n >= step else 0, above[n], above[n - step] if n >= step else 0)
            & 255
            for n, one in enumerate(line)
        )
        above = line
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2 if step == 3 else 6, 0, 0, 0)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(raw)) + _chunk(b"IEND", b"")


def guess(kind, left, up, corner):
    """Return what a filter expects for a byte."""
    near = left + up - corner
    paeth = min((left, up, corner), key=lambda one: abs(near - one))  # the first of equals
    return (0, left, up, (left + up) // 2, paeth)[kind]


def shown(png):
    """Return the pixels of a PNG with a palette."""
    parts = dict(_chunks(png))
    table, raw = parts[b"PLTE"], zlib.decompress(parts[b"IDAT"])
    lines = [raw[at + 1 : at + 1 + WIDTH] for at in range(0, len(raw), WIDTH + 1)]
    return [tuple(table[3 * one : 3 * one + 3]) for line in lines for one in line]


def many_colours():
    """A surface of one colour, and more colours than a palette has."""
    plain, bright = [(250, 250, 250)] * (WIDTH * HEIGHT // 2), range(WIDTH * HEIGHT // 2)
    return [*plain, *((n * 3 % 256, n * 7 % 256, n // 4) for n in bright)]


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("step", [3, 4])
def test_a_picture_of_few_colours_is_the_same(kind, step):
    pixels = [(n % 16 * 10, n % 5 * 50, 7) for n in range(WIDTH * HEIGHT)]
    assert shown(smaller(png_of(pixels, kind, step))) == pixels


def test_a_picture_of_many_colours_looks_the_same():
    pixels = many_colours()
    found = shown(smaller(png_of(pixels)))
    assert len(set(found)) <= COLOURS < len(set(pixels))
    assert found[: WIDTH * HEIGHT // 2] == pixels[: WIDTH * HEIGHT // 2]  # frequent colours are exact
    far = [
        max(abs(a - b) for a, b in zip(one, other, strict=True))
        for one, other in zip(found, pixels, strict=True)
    ]
    assert sum(far) / len(far) < 10


def test_pixels_are_read_from_every_filter():
    pixels = many_colours()
    for kind in range(5):
        assert _decoded(png_of(pixels, kind)) == (WIDTH, HEIGHT, pixels)
