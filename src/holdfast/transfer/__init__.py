"""Export, import and move: runs that go from one store to another, by way of a file or directly.

| module | content |
|---|---|
| `reading` | whole runs and events of a store, in bounded memory |
| `writing` | the same into a store |
| `numbers` | numbers of events: those of the source become those of the target |
| `settings` | definitions, registry, limits and schedules |
| `lines` | the lines of a file: docs/transfer.md describes them |
| `exporting` | a store into a file |
| `importing` | a file into a store |
| `masking` | values that are hidden in a copy for debugging |
| `families` | groups of runs that must move together |
| `leaving` | runs that stop at the source, and come back |
| `moving`, `move_reports` | a store into another store: `Mover`, and its report |
| `comparing` | whether a run came as it was |
| `resealing` | values of encrypted stores, sealed anew |
| `departing`, `receipts` | a move by a file, and what the two sides tell each other |
| `late_events` | events that come to the source after that file was written |
| `places` | where a store is, for people |
"""
