"""The rooms of the contract: reads, and what a store offers beside runs and their queue."""

from .approvals import Approvals
from .catalog import Catalog
from .outbox import Outbox

__all__ = ["Approvals", "Catalog", "Outbox"]
