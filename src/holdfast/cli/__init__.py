"""The command line. A command's module is imported only when that command is invoked."""
