"""The machine: what each move does, once, as pure Python over a small view of the rows.

| moves | file |
|---|---|
| start | starting.py |
| claim, renew | claiming.py |
| checkpoint, advance, park, complete, fail, retry, release | moves.py, commit.py, steps.py |
| deliver, lapse: a wait gets its outcome | settling.py; what that means for its run: waking.py |
| decide | deciding.py, in the words of gates.py |
| cancel, pause, resume, rewind, retry_run, set_priority, delete, restore | people.py |
| append_step, and how a plan goes on from row to row | plans.py |
| expire, time_out | chores.py |
| what runs owe: news of their end, cancels of children, a look | children.py |
| how a run ends, whoever ends it | ending.py |

The docstrings of the moves are a part of the contract: `contract/` points at them by name.

No move does I/O, knows SQL or has a clock: a store offers a `View` (view.py) over its rows (rows.py), inside
one transaction, and writes what has changed. Memory and SQLite share these moves. Postgres has its own, in
SQL, and the two are compared by the contract suite and by the law that stores agree.
"""
