"""Writes the pages of docs/reference that are derived from code; `--check` fails when one is stale."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.lifecycle import FINAL, MOVES, OPEN, WAIT_MOVES, Rule, Status, Who

if TYPE_CHECKING:
    import click

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `./hf docs` from {source}: change it there. -->"


def page(title: str, source: str, *blocks: str) -> str:
    return "\n\n".join([f"# {title}", NOTE.format(source=source), *blocks]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def mermaid(lines: Iterable[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```"])


def named(statuses: frozenset[Status]) -> str:
    """In the order of the machine, so that the page does not depend on a set's."""
    if statuses == set(Status):
        return "any"
    return ", ".join(f"`{status}`" for status in Status if status in statuses) or "nothing"


def _to(rule: Rule) -> str:
    return "the same" if rule.keeps else named(rule.targets)


def edges(rule: Rule) -> Iterator[tuple[str, str]]:
    """The pairs that a row allows. Only a claim gives a lease, so an outsider's move that may leave
    a run leased does so to one that already is, and to no other.
    """
    if not rule.sources:
        yield from (("[*]", target) for target in Status if target in rule.targets)
    if rule.keeps:
        yield from ((status, status) for status in Status if status in rule.sources)
        return
    outsider = rule.who not in {Who.WORKER, Who.HOLDER}
    stays = {Status.LEASED} & rule.sources & rule.targets if outsider else set()
    for source in Status:
        targets = stays if source in stays else rule.targets - stays
        if source in rule.sources:
            yield from ((source, target) for target in Status if target in targets)


def run_diagram() -> str:
    arrows: dict[tuple[str, str], list[str]] = {}
    for rule in MOVES:
        if rule.sources == set(Status):
            continue  # from everywhere: an arrow from each would hide the rest
        for source, target in edges(rule):
            if source != target:
                arrows.setdefault((source, target), []).append(rule.move)
    lines = [f"{source} --> {target}: {', '.join(moves)}" for (source, target), moves in arrows.items()]
    return mermaid([*lines, *(f"{status} --> [*]" for status in Status if status in FINAL)])


def moves() -> str:
    runs = table(
        ["move", "from", "to", "who", "also"],
        [[f"`{rule.move}`", named(rule.sources), _to(rule), rule.who, rule.also] for rule in MOVES],
    )
    waits = table(
        ["move", "settles", "when"],
        [[f"`{rule.move}`", ", ".join(sorted(rule.settles)), rule.also] for rule in WAIT_MOVES],
    )
    settled = mermaid(
        [
            "[*] --> open: park",
            *(f"open --> settled: {rule.move} ({', '.join(sorted(rule.settles))})" for rule in WAIT_MOVES),
            "open --> cancelled: the run ends",
            "settled --> [*]",
            "cancelled --> [*]",
        ]
    )
    return page(
        "Moves",
        "`holdfast.lifecycle`",
        f"A run is open while it is {named(OPEN)}, and final when it is {named(FINAL)}. "
        "It changes only by the moves below; every other is refused and changes nothing.",
        "## Runs",
        runs,
        "Moves that leave the status as it is, and those from any status, are in the table only.",
        run_diagram(),
        "## Waits",
        "A wait is a step that is open until something from outside settles it, once.",
        waits,
        settled,
    )


def first_words(thing: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def error_tree(cls: type[errors.HoldfastError], depth: int = 0) -> Iterator[str]:
    yield f"{'  ' * depth}- `{cls.__name__}`: {first_words(cls)}"
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from error_tree(child, depth + 1)


def errors_page() -> str:
    return page(
        "Errors",
        "`holdfast.errors`",
        "All are names of `holdfast.errors`. Catching one catches those indented below it.",
        "\n".join(error_tree(errors.HoldfastError)),
    )


def command_blocks(command: click.Command, ctx: click.Context) -> Iterator[str]:
    import click

    yield f"## `{ctx.command_path}`"
    yield f"```\n{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}\n```"
    if command.help:
        yield inspect.cleandoc(command.help).replace("\b\n", "")
    records = [param.get_help_record(ctx) for param in command.get_params(ctx) if "--help" not in param.opts]
    rows = [[f"`{record[0]}`", record[1]] for record in records if record]
    if rows:
        yield table(["option", "meaning"], rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None and not child.hidden:
                yield from command_blocks(child, click.Context(child, info_name=name, parent=ctx))


def cli_page() -> str:
    import click

    from holdfast.cli.main import cli

    ctx = click.Context(cli, info_name="holdfast")
    return page("Command line", "`holdfast.cli`", *command_blocks(cli, ctx))


def pages() -> dict[str, str]:
    found = {"moves.md": moves(), "errors.md": errors_page()}
    if (ROOT / "src" / "holdfast" / "cli" / "main.py").exists():
        found["cli.md"] = cli_page()
    return found


def main(arguments: Sequence[str]) -> int:
    stale = []
    for name, text in pages().items():
        path = FOLDER / name
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote docs/reference/{name}")
    if stale and "--check" in arguments:
        print(f"stale: {', '.join(stale)}; `./hf docs` writes them")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
