"""The contract suite over Postgres."""

from __future__ import annotations

from holdfast.testing import contract

from tests.stores.postgres.kit import make

TestPostgres = contract(make)
