"""OpenTelemetry spans of starts, executions, steps, waits and messages.

Only the API of OpenTelemetry is used, and it is imported only when the program has done so itself and has
set up a tracer provider. Without one, nothing here is more than a look into `sys.modules`. A failure in here
changes nothing about a run: it is logged once. No span has a payload, params, a result, a key or an error's
message.

| module | contents |
|---|---|
| `provider.py` | the tracer, the current span, and the guard against failures |
| `carried.py` | the text that is stored as the trace of a run |
| `attributes.py` | the names of attributes |
| `spans.py` | contexts of other processes, links, errors |
| `run_spans.py` | spans of one execution: the run, its waits and its children |
| `step_spans.py` | the span of one try of a step |
| `start_spans.py` | the span of a start, and the trace that it gives to its runs |
| `send_spans.py` | the span of one try to deliver a message |
"""
