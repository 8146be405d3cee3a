"""Connections to the file, and the one thread that writes.

- `database`: one connection, and the few calls that verbs need.
- `writer`: the writer thread with group commit.
- `turnstile`: fair turns between processes that write to the same file.
- `hints`: wake-ups for listeners, after commits of this process and of others.
- `wal`: keeps the write-ahead log short.
- `forks`: closes the file before a fork and opens it again after the fork.
- `other_sqlite`: refuses a second SQLite library on the same file in one process.
- `errors`: errors of the driver as errors of Holdfast.
"""
