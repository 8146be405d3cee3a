"""Experiments with any server: it is killed, it ends sessions, its answers are lost."""
