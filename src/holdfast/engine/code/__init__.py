"""Execution of code workflows: the context, steps, waits, children, transactions; replay from the record."""
