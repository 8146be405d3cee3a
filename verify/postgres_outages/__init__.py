"""Experiments in which a Postgres server, its sessions or its answers are lost."""
