"""Every test can ask for a real server; see servers/plugin.py."""

pytest_plugins = ["servers.plugin"]
