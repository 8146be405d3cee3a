"""The command line: `main` has the table of commands, `commands/` one module for each.

The other modules are parts that commands share. A command's module is imported only when it is called.
"""
