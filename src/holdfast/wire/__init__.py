"""The worker protocol as records: the bodies of requests and answers, as `docs/worker-protocol.md` has them.

| file | contents |
|---|---|
| `requests.py` | the bodies that a worker sends |
| `answers.py` | the answers of the server |
| `nulls.py` | null in an optional field |
| `values.py` | times of a lease, values, costs: how a field is written |
| `ids.py` | the ids that are derived: children, the next run of a chain, events, messages |
| `items.py` | an item of a batch becomes a record of the store |
| `reading.py` | the other requests become records of the store |
| `writing.py` | records of the store become answers |

The server needs one direction of each. A worker in Python can share the records.
"""
