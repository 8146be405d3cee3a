"""The experiment crashpoints: a crash at every store call in turn, in virtual time."""
