"""The verbs of limits for the hand, with what most tests want left out."""

from __future__ import annotations

from holdfast.records import ANY

from .hand import TYPE


def limit(hand, scope="type", name=TYPE, **fields):
    return hand.run(hand.store.limit(scope, name, **fields))


def unlimit(hand, scope="type", name=TYPE):
    return hand.run(hand.store.unlimit(scope, name))


def limits(hand):
    return hand.run(hand.store.limits())


def held_back(hand, run):
    return hand.run(hand.store.held_back(run, ANY))


def started(hand, count, **fields):
    return [hand.start(**fields) for _ in range(count)]


def claimed(hand, **fields):
    return [claim.id for claim in hand.claim(**fields)]
