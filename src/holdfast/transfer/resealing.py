"""Values of encrypted stores on their way: as they are, for a target with the same keys; or sealed anew."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.contract import Store
from holdfast.errors import UsageError
from holdfast.records.transfer import CarriedEvent, CarriedRun
from holdfast.sealing import Sealed
from holdfast.sealing.carried import Reseal

from .lines import ScheduleLine
from .settings import Setting


class Resealing:
    """Passes values from the source to the target. anew: they are opened, and sealed with the keys of the
    target; without keys there they are plain. `opened` and `opened_there` make values comparable."""

    def __init__(self, source: Store, target: Store, *, anew: bool) -> None:
        self.source = source.inner if isinstance(source, Sealed) else source
        self.target = target.inner if isinstance(target, Sealed) else target
        here = source.chain if isinstance(source, Sealed) else None
        there = target.chain if isinstance(target, Sealed) else None
        if here is None and there is not None:
            raise UsageError(
                "the values are plain, and the target is encrypted: move them to the store without keys, and "
                "let its app accept plain values until they are gone (accept_plain)"
            )
        if here is not None and there is None and not anew:
            raise UsageError("the values are encrypted, and the target has no keys: open them (reseal)")
        self._seal = Reseal(here, there) if here is not None and anew else None
        self._open = None if self._seal is None or here is None else Reseal(here, None)
        self._open_there = None if self._seal is None or there is None else Reseal(there, None)

    def part(self, part: CarriedRun) -> CarriedRun:
        return part if self._seal is None else self._seal.part(part)

    def event(self, event: CarriedEvent) -> CarriedEvent:
        return event if self._seal is None else self._seal.event(event)

    def setting(self, setting: Setting) -> Setting:
        if self._seal is None or not isinstance(setting, ScheduleLine):
            return setting
        return replace(
            setting, params=self._seal.schedule_params(setting.params, setting.tenant, setting.name)
        )

    def opened(self, part: CarriedRun) -> CarriedRun:
        return part if self._open is None else _same(self._open.part(part))

    def opened_there(self, part: CarriedRun) -> CarriedRun:
        if self._seal is None:
            return part
        return _same(part if self._open_there is None else self._open_there.part(part))


def _same(part: CarriedRun) -> CarriedRun:
    """Return a run without digests, which depend on keys."""
    row = None if part.row is None else replace(part.row, digest="")
    return replace(part, row=row, steps=tuple([replace(one, digest=None) for one in part.steps]))
