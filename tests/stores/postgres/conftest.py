"""Databases with a store in them, and links to them."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.stores.postgres.opened import VERBS, opened
from tests.stores.postgres.proxy import Proxy


@pytest.fixture
def database(postgres_database):
    asyncio.run(_make(postgres_database.url))
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute(VERBS)
    return postgres_database


@pytest.fixture
def link(database):
    with Proxy(database.dsn) as proxy:
        yield proxy


@pytest.fixture
def admin(database):
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        yield connection


async def _make(url):
    async with opened(url):
        pass
