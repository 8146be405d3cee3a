"""Driver functions for limits, with the usual arguments filled in."""

from __future__ import annotations

from holdfast.records import ANY

from .driver import TYPE


def limit(driver, scope="type", name=TYPE, **fields):
    return driver.run(driver.store.limit(scope, name, **fields))


def unlimit(driver, scope="type", name=TYPE):
    return driver.run(driver.store.unlimit(scope, name))


def limits(driver):
    return driver.run(driver.store.limits())


def held_back(driver, run):
    return driver.run(driver.store.held_back(run, ANY))


def started(driver, count, **fields):
    return [driver.start(**fields) for _ in range(count)]


def claimed(driver, **fields):
    return [claim.id for claim in driver.claim(**fields)]
