"""Explanations for people: why one run does not move (`explain`), and how a whole store is (`doctor`)."""
