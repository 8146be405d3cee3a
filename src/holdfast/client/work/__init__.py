"""Work over HTTP: a store for workers that reach a server, and not the database.

The engine executes runs on it as on every other store. Its verbs are requests of the worker protocol, as
`docs/worker-protocol.md` says.

| file | contents |
|---|---|
| `store.py` | `RemoteStore`: the verbs of a worker |
| `verbs.py` | the verbs that go through `holdfast.Client`: starts, events, reads, moves |
| `link.py` | one request and its answer, awaited or blocking |
| `book.py` | the leases that are held, with their tokens |
| `sending.py` | records become requests |
| `receiving.py` | answers become records |
| `open_claim.py` | the claim that waits at the server for the next run |
| `watch.py` | the long poll that tells of cancels and pauses |
"""
