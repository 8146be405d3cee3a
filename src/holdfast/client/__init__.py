"""The client of the HTTP API: the verbs of an app, for programs that have no access to the store.

`holdfast.Client` is in `client.py`. The library for HTTP (httpx2) is imported at the first request.
"""
