"""Outages of a Redis server: it is killed, the end of its log is lost, a replica takes over."""
