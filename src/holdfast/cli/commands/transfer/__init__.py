"""Commands that carry runs from one store to another."""
