"""The engine: claims runs, executes them, commits what they did. It knows the contract, no store."""
