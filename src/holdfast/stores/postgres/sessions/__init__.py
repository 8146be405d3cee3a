"""Sessions with the server: pools of them, calls with retries, lease renewal, listeners, forks."""
