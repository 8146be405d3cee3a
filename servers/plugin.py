"""pytest fixtures for servers: a server starts when the first test needs it, and ends with the session.

Each worker of pytest-xdist has its own servers. A server that cannot be started is a failure: a run that
skipped its tests would pass without testing anything.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pytest

from servers.private import MEMORY, ServerError, usable

# The drivers take a quarter of a second to import, and most tests do not need them.
if TYPE_CHECKING:
    from servers.databases import Database
    from servers.named import NamedPostgres
    from servers.postgres import Postgres
    from servers.prometheus import Programs, Prometheus, Target

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("servers")
    group.addoption("--no-postgres", action="store_true", help="skip the tests that need a Postgres server")
    group.addoption("--no-redis", action="store_true", help="skip the tests that need a Redis server")
    group.addoption(
        "--redis-cluster", action="store_true", help="run the whole contract in a cluster, not a part of it"
    )
    group.addoption("--redis-server", help="the server that tests get: redis-6.2, redis-7, valkey, …")
    group.addoption("--postgres-version", type=int, help="the major version that tests get by default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the Redis store out, if they are not wanted: some make stores without a fixture."""
    if config.getoption("--no-redis"):
        for item in items:
            if any(name in item.nodeid for name in ("tests/stores/redis/", "test_redis", "Redis::")):
                item.add_marker(pytest.mark.skip(reason="--no-redis"))


def pytest_configure(config: pytest.Config) -> None:
    """Pass versions on by the environment: workers of xdist and stores of a whole process read them.

    Folders of tests are in memory where that is possible: on a disk, to make one can take a millisecond.
    """
    if version := config.getoption("--postgres-version"):
        os.environ["HOLDFAST_TEST_PG_VERSION"] = str(version)
    if server := config.getoption("--redis-server"):
        os.environ["HOLDFAST_TEST_REDIS_SERVER"] = server
    if config.getoption("--redis-cluster"):
        os.environ["HOLDFAST_TEST_REDIS_CLUSTER"] = "whole"
    if usable(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[Postgres | NamedPostgres]:
    """The server of HOLDFAST_TEST_PG_DSN, or a private one. Tests must not kill or stop it."""
    from servers.postgres import postgres_for_tests

    _skip_if_unwanted(request.config)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_for_tests())
        except ServerError as error:
            pytest.fail(str(error), pytrace=False)
        yield server


@pytest.fixture(scope="session")
def postgres_of(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Postgres]]:
    """Function that returns a private server of a major version. Tests must not kill or stop it."""
    from servers.postgres import running_postgres

    _skip_if_unwanted(request.config)
    running: dict[int, Postgres] = {}
    with ExitStack() as stack:

        def of(version: int) -> Postgres:
            if version not in running:
                try:
                    running[version] = stack.enter_context(running_postgres(version))
                except ServerError as error:
                    missing(str(error), "CI")
            return running[version]

        yield of


@pytest.fixture(scope="session")
def postgres_18(postgres_of: Callable[[int], Postgres]) -> Postgres:
    return postgres_of(18)


@pytest.fixture
def postgres_database(postgres_server: Postgres | NamedPostgres) -> Iterator[Database]:
    """An empty database for this test alone."""
    with ExitStack() as stack:
        yield fresh_database(postgres_server, stack)


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty namespace for this test alone, on the server of this process."""
    if request.config.getoption("--no-redis"):
        pytest.skip("--no-redis")
    from servers.redis import forget
    from servers.redis_store import server

    try:
        running = server()
    except ServerError as error:
        pytest.fail(str(error), pytrace=False)
    url = running.url(f"fresh{next(_numbers)}")
    yield url
    with running.client() as client:
        forget(client, url)


@pytest.fixture
def pgbouncer(request: pytest.FixtureRequest) -> Iterator[Callable[..., Database]]:
    """Function that puts PgBouncer before a database: `pgbouncer(server, name, pool_mode="transaction")`."""
    from servers.pgbouncer import running_pgbouncer

    _skip_if_unwanted(request.config)
    with ExitStack() as stack:

        def in_front(server: Postgres, database: str, pool_mode: str = "transaction") -> Database:
            try:
                return stack.enter_context(running_pgbouncer(server, database, pool_mode))
            except ServerError as error:
                missing(str(error), "HOLDFAST_REQUIRE_PGBOUNCER")

        yield in_front


@pytest.fixture(scope="session")
def prometheus_programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The programs prometheus and promtool."""
    from servers.prometheus import REQUIRED_BY, find

    try:
        return find(tmp_path_factory.mktemp("prometheus"))
    except ServerError as error:
        missing(str(error), *REQUIRED_BY)


@pytest.fixture
def prometheus(
    prometheus_programs: Programs,  # noqa: ARG001 - without them the test is skipped
) -> Iterator[Callable[..., Prometheus]]:
    """Function that starts a Prometheus: `prometheus(Target("worker", "127.0.0.1:9100"))`."""
    from servers.prometheus import running_prometheus

    with ExitStack() as stack:

        def scraping(*targets: Target, interval: str = "250ms") -> Prometheus:
            return stack.enter_context(running_prometheus(targets, interval=interval))

        yield scraping


_numbers = itertools.count(1)


def fresh_database(
    server: Postgres | NamedPostgres, stack: ExitStack, template: str | None = None
) -> Database:
    """Create a database that is dropped when the stack closes."""
    from servers.databases import Database

    name = f"fresh{next(_numbers)}"
    real = server.create_database(name, template)
    stack.callback(server.drop_database, name)
    return Database(real, server.dsn(name), server.url(name))


def missing(reason: str, *required_by: str) -> NoReturn:
    """Skip a test for want of a tool that only some tests need, or fail if one of these variables is set."""
    if any(os.environ.get(name) for name in required_by):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def started(server: AbstractContextManager[T]) -> Iterator[T]:
    """Run a server. If it cannot be started, the test fails with one line that names the remedies."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(server)
        except ServerError as error:
            pytest.fail(str(error), pytrace=False)
        yield running


def need(*tools: str) -> None:
    """Skip a test for want of programs that are not on the PATH, or fail in CI."""
    if absent := [tool for tool in tools if shutil.which(tool) is None]:
        missing(f"not on the PATH: {', '.join(absent)}", "CI")


def _skip_if_unwanted(config: pytest.Config) -> None:
    if config.getoption("--no-postgres"):
        pytest.skip("--no-postgres")
