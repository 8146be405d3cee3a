"""`holdfast demo`: a workflow survives a killed process, and every claim about it is checked."""
