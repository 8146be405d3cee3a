"""Every test can ask for a real server; see servers/plugin.py."""

from __future__ import annotations

import gc
import logging
import signal
from unittest.mock import patch

import pytest

pytest_plugins = ["servers.plugin"]


def pytest_configure():
    """Take SIGINT as a terminal gives it.

    A shell that starts a program in the background lets it ignore SIGINT, and so all processes of the tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Keep the collected tests out of garbage collection: they are many, and live until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def log_levels():
    """Restore the levels of loggers that a test has set: commands of the command line set them for good."""
    loggers = logging.getLogger(), logging.getLogger("holdfast")
    before = [one.level for one in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def copied_schema():
    """Give each new SQLite store in memory a copy of one schema: to make all tables takes 4 ms each time.

    Stores in files make their tables themselves.
    """
    import apsw

    from holdfast.stores.sqlite import migrate

    make_tables, made = migrate.migrate, []

    def copied(db, path):
        if path != ":memory:":
            make_tables(db, path)
        elif not made:
            make_tables(db, path)
            made.append(db.connection.serialize("main"))
        else:
            source = apsw.Connection(":memory:")
            source.deserialize("main", made[0])
            with db.connection.backup("main", source, "main") as backup:
                backup.step()
            source.close()

    with patch.object(migrate, "migrate", copied):
        yield
