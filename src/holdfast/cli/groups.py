"""Groups of commands: `holdfast limit set`, `holdfast limit ls`."""

from __future__ import annotations

import click


class CommandGroup(click.Group):
    """A group that prints its help without arguments, and names its commands when one is unknown."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which they are written

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise click.UsageError(f"{self.name} has no command {args[0]!r}: {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)
