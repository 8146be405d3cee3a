"""Real database servers for tests, verify and bench. A server ends with the process that started it.

    from servers.postgres import running_postgres

    with running_postgres(fsync=True) as server:
        server.create_database("orders")
        psycopg.connect(server.dsn("orders"))

A server that this project did not start is never used, unless an environment variable names it.
"""
