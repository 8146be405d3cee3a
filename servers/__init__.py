"""Real database servers for tests, verify and bench: private, identified, and gone when their owner is.

    from servers.postgres import running_postgres

    with running_postgres(fsync=True) as server:
        server.create_database("orders")
        psycopg.connect(server.dsn("orders"))

A server that this project did not start is never spoken to, unless an environment variable names it.
"""
