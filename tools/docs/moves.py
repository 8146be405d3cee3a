"""The page of moves: the tables of `holdfast.lifecycle`, every way between two statuses, and a drawing."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.lifecycle import FINAL, MOVES, OPEN, WAIT_MOVES, Actor, Rule, Status
from tools.docs import drawing, text

START = "[*]"


def named(statuses: frozenset[Status]) -> str:
    """Return the statuses in the order of the machine, so that the page does not depend on a set's."""
    if statuses == set(Status):
        return "any"
    return ", ".join(f"`{status}`" for status in Status if status in statuses) or "nothing"


def _to(rule: Rule) -> str:
    return "the same" if rule.keeps else named(rule.targets)


def edges(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the pairs that a row allows. Only a claim gives a lease, so an outsider's move that may leave
    a run leased does so to one that already is, and to no other.
    """
    if not rule.sources:
        yield from ((START, target) for target in Status if target in rule.targets)
    if rule.keeps:
        yield from ((status, status) for status in Status if status in rule.sources)
        return
    outsider = rule.who not in {Actor.WORKER, Actor.HOLDER}
    stays = {Status.LEASED} & rule.sources & rule.targets if outsider else set()
    for source in Status:
        targets = stays if source in stays else rule.targets - stays
        if source in rule.sources:
            yield from ((source, target) for target in Status if target in targets)


def arrows() -> dict[tuple[str, str], list[str]]:
    """Return the moves between each pair of statuses. Moves from every status are left out: an arrow from
    each would hide the rest.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for rule in MOVES:
        if rule.sources == set(Status):
            continue
        for source, target in edges(rule):
            if source != target:
                found.setdefault((source, target), []).append(rule.move)
    return found


def _matrix() -> str:
    found = arrows()
    targets = [status for status in Status if any(status == target for _, target in found)]
    sources = [name for name in (START, *Status) if any(name == source for source, _ in found)]
    rows = [
        [
            "(new)" if source == START else f"`{source}`",
            *(", ".join(f"`{move}`" for move in found.get((source, target), [])) for target in targets),
        ]
        for source in sources
    ]
    return text.table(["from \\ to", *(f"`{status}`" for status in targets)], rows)


def picture() -> str:
    """Draw the life of a run as SVG. Every drawn arrow is one that the tables allow."""
    found = arrows()
    for arrow in drawing.ARROWS:
        allowed = found.get((arrow.source, arrow.target), [])
        unknown = [move for move in arrow.moves if move not in allowed]
        if unknown and (arrow.source, arrow.target) != drawing.SETTLED:
            message = f"the drawing has {unknown} from {arrow.source} to {arrow.target}: no such moves"
            raise ValueError(message)
    return drawing.svg([rule.move for rule in WAIT_MOVES])


def page() -> str:
    runs = text.table(
        ["move", "from", "to", "who", "also"],
        [[f"`{rule.move}`", named(rule.sources), _to(rule), rule.who, rule.also] for rule in MOVES],
    )
    waits = text.table(
        ["move", "settles", "when"],
        [[f"`{rule.move}`", ", ".join(sorted(rule.settles)), rule.also] for rule in WAIT_MOVES],
    )
    return text.page(
        "Moves",
        "`holdfast.lifecycle`",
        f"A run is open while it is {named(OPEN)}. It is final when it is {named(FINAL)}. "
        "Only the moves below change a run. Every other move is refused and changes nothing.",
        "![The moves of a run: pending, leased, waiting, paused, succeeded, failed, cancelled](moves.svg)",
        "The drawing shows the usual moves of a workflow that is code. The tables have all moves. "
        "A `leased` run is shown to people as *running*.",
        "## Runs",
        runs,
        "## Every way between two statuses",
        "Moves from any status are left out here, and so are moves that keep the status.",
        _matrix(),
        "## Waits",
        "A wait is a step that is open until something from outside settles it, once. "
        "A waiting run of code is `pending` again when one of its waits is settled; a plan goes on with its "
        "next step. When the run ends first, the wait is cancelled.",
        waits,
    )
