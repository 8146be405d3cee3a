"""The cases, one module for each group. Importing this module lists them, in the order in which they run."""

from . import basics, values, retries, waits, lost_answers, trouble, leases, program  # noqa: F401, I001
