"""Experiments in which worker processes are killed, stopped, or die with their runs."""
