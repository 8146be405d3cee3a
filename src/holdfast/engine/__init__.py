"""The engine: it claims runs, executes them and commits their results. It knows the contract, but no
store.
"""
