"""The contract suite over Postgres: the server at hand, and the newest there is a wheel of."""

from __future__ import annotations

from holdfast.testing import contract
from tests.stores.postgres.kit import make

TestPostgres = contract(make)
