"""Plans: workflows that are a fixed list of steps. Each step is a row from the start, and only rows
decide.
"""
