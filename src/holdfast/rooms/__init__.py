"""The rooms of the contract: reads, and what a store offers beside runs and their queue."""

from .approvals import Approvals
from .catalog import Catalog
from .limits import Limits, Registry
from .outbox import Outbox
from .records import Recorded
from .schedules import Schedules

__all__ = ["Approvals", "Catalog", "Limits", "Outbox", "Recorded", "Registry", "Schedules"]
