"""Real database servers for tests, verify and bench: private, identified, and gone when their owner is.

    from servers import running_postgres

    with running_postgres(fsync=True) as server:
        server.create_database("orders")
        psycopg.connect(server.dsn("orders"))

A server that this project did not start is never spoken to, unless an environment variable names it.
"""

from servers.postgres import Postgres, postgres_for_tests, running_postgres

__all__ = ["Postgres", "postgres_for_tests", "running_postgres"]
