"""One module for each command, or for a few related ones.

`main` imports a module only when its command is called.
"""
