"""The parts of the page of one run: data, timeline, moves, commands, errors, the form of its params."""
