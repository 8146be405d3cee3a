"""Claiming: choose due runs for a worker and lease them, in one transaction of the writer.

**Queue.** A run may be claimed while its status is `pending`, its `run_at` has passed and it is not deleted.
Runs are taken in the order (priority, run_at, id); a lower priority number goes first. The claim names its
types, and may name tenants. Patterns such as `shop.%` are not known here: the worker turns them into types.

**Walks.** An index lists the pending runs of each type in queue order. A walk goes from one priority to the
next by this index and reads each priority only up to `run_at <= now`. Runs that are not due, finished, or of
other types are never read. Several types or tenants are several walks, merged in queue order.

**Limits and registry.** Users may set, for a type, a tenant or a limit_key: a concurrency (leased runs at
once), a rate (claims in a period), a pause (keys only) and a weight (tenants only). A registry entry may
disable a type or reserve it for another runtime. One small row holds a revision number that changes with
every setting. The first statement of a claim reads that number along, so a store without settings pays
nothing. With settings, each due run is checked against the capacity of its type, tenant and key. Leased runs
are counted, never stored as a counter, so a crash cannot leave a wrong count. Claims under a rate are
recorded in `workflow_limit_use`.

**Lanes.** A lane is the part of the queue with the same type, tenant, limit_key and priority. Lanes exist
because a full tenant or key may have very many due runs at the head of the queue, and reading past all of
them would make each claim slow. So a claim reads in queue order first. After `PATIENCE` runs that did not
fit, it goes lane by lane instead: it reads the first run of each lane, and skips a full lane as a whole.

**Fair shares.** When a tenant has a weight, tenants take turns in place of the global queue order. Within a
tenant the queue order holds. `holdfast.stores.claiming.shares` explains the turns.

**Atomicity and locks.** The choice, the update to `leased`, the recorded uses of rates and the turns are one
transaction. The writer holds the write lock, so two claims never see the same run as pending. A claim looks
first on the reader's connection, without a lock; when it finds nothing it does not write.

**Cost.** Without limits a claim of n runs reads n rows, plus one index lookup for each type and priority.
With limits it reads at most `PATIENCE` more rows, and then a few lookups for each lane. A look at every lane
runs in slices, so that the event loop is not blocked, and its answer is kept until the file changes.

Modules:
- `claim`: the verbs claim and load.
- `walks`: due runs of a type or a tenant in queue order, by index.
- `limited`: one claim under limits: checks capacities, switches to lanes, takes turns.
- `lanes`: runs lane by lane.
- `capacity`: settings as read from the file, and the usage of limits.
- `next_claim`: the earliest time at which a claim may find something.
- `limits`: the verbs that set and show limits and the registry.
"""
