"""The command `conformance`, and its report."""
