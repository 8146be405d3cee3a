"""The conformance kit: it drives any worker program as a black box, and says what it gets wrong.

| file | contents |
|---|---|
| `stage.py` | what a case needs: a store with a clock that can be turned, the server, the program, runs |
| `proxy.py` | the real HTTP API behind a layer that watches every request and injects faults |
| `faults.py` | the faults, and the answers that they make |
| `traffic.py` | the requests and answers that were seen |
| `rules.py` | what every request keeps, in every case: fence, token, numbers, times |
| `ledger.py` | where steps report that they run, outside of the protocol |
| `other_worker.py` | a second worker, which is the kit itself |
| `process.py` | the program: started, stopped, killed |
| `mistakes.py` | the mistakes that the kit can name, and how to mend them |
| `checks.py` | checks that many cases share |
| `case.py`, `cases/` | the cases, one file for each group |
| `running.py` | runs the cases, one after the other |

A verdict comes from what was seen only: requests, the record of the store, its trail, and the ledger.
"""
