"""http: hostile requests to a server of the HTTP API."""
