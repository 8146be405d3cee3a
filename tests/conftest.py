"""Every test may ask for a real server; see servers/plugin.py."""

pytest_plugins = ["servers.plugin"]
