"""`holdfast doctor --recount`: the kept counts compared with all runs, and repaired on request."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contract import Store
from holdfast.contract.extras import HasSets
from holdfast.escaping import escaped
from holdfast.lifecycle import spoken_status
from holdfast.records import Finding, Miscount
from holdfast.sealing import Sealed

SHOWN = 5  # differences that the finding names


async def recounted(store: Store, *, repair: bool) -> Finding:
    """Compare the counts with all runs, which takes time. Return the finding: differences are an error, or a
    warning once they are repaired.
    """
    wrong = await store.recount(repair=repair)
    if not wrong:
        return Finding(level="ok", what="the kept counts agree with all runs")
    one = len(wrong) == 1
    what = f"{len(wrong):,} kept count{' differs' if one else 's differ'} from the runs: {_named(wrong)}"
    if not repair:
        return Finding(level="error", what=what, mend="`holdfast doctor --repair` repairs them")
    return Finding(
        level="warning",
        what=f"{what}; {'it is' if one else 'they are'} repaired",
        mend="Holdfast never leaves counts like this: find the program that has changed the store",
    )


async def rebuilt(store: Store, *, repair: bool) -> Sequence[Finding]:
    """Compare sets of a store with its rows, if it has such sets, and rebuild them on request."""
    behind = store.inner if isinstance(store, Sealed) else store
    return await behind.check_sets(repair=repair) if isinstance(behind, HasSets) else ()


def _named(wrong: Sequence[Miscount]) -> str:
    named = [
        f"{one.kept:,} {spoken_status(one.status)} of {escaped(one.type)} "
        f"{f'for tenant {escaped(one.tenant)}' if one.tenant else 'for all tenants'}, in fact {one.real:,}"
        for one in wrong[:SHOWN]
    ]
    return "; ".join(named) + (f"; and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else "")
