"""The list of commands, their help, and what importing them costs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Union, get_origin

import click
import pytest

import holdfast
from holdfast.cli.main import COMMANDS, cli

HEAVY = ("apsw", "asyncio", "msgspec", "holdfast.engine.app.app", "logging")
# For another program, and without a store.
PRINTS_A_FILE = {"metrics dashboard", "metrics rules", "redis producer"}
PRINTS_NO_DATA = {"worker", "serve", "dev", "demo"}


def commands():
    context = click.Context(cli, info_name="holdfast")
    return {name: cli.get_command(context, name) for name in COMMANDS}


def leaves():
    """Those that do something: of a family each of its commands."""
    for name, command in commands().items():
        members = command.commands if isinstance(command, click.Group) else {"": command}
        for member, leaf in members.items():
            yield f"{name} {member}".strip(), leaf


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["--help", "--version", "strat"])
def test_the_list_of_commands_costs_no_driver_and_no_engine(asked):
    """Nothing that a command needs is imported before that command is asked for."""
    script = f"""
import sys
from typing import Union, get_origin
from holdfast.cli.main import cli
try:
    cli.main([{asked!r}])
except SystemExit:
    print("heavy:", *[name for name in {HEAVY} if name in sys.modules])
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "heavy:"


@pytest.mark.slow
def test_importing_the_package_costs_nothing_until_a_name_is_used():
    script = f"""
import sys, holdfast
print([name for name in {HEAVY} if name in sys.modules])
from holdfast import App
print("holdfast.engine.app.app" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.split("\n") == ["[]", "True", ""]


def test_every_public_name_can_be_imported():
    for name in holdfast.__all__:
        found = getattr(holdfast, name)
        # A union has no name of its own, and ANY is a value.
        assert get_origin(found) is Union or getattr(found, "__name__", repr(found)) == name
    assert set(holdfast.__all__) <= set(dir(holdfast))
    assert set(holdfast._HOME) == set(holdfast.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Apple'"):
        _ = holdfast.Apple


@pytest.mark.spec("CLI-1")
def test_every_command_is_listed_with_the_words_of_its_own_help():
    for name, command in commands().items():
        first = inspect.cleandoc(command.help).splitlines()[0]
        assert COMMANDS[name].help == first, name


def test_every_option_has_a_help_text():
    """An undocumented command or option is a mistake."""
    for name, command in leaves():
        for param in command.params:
            assert isinstance(param, click.Argument) or param.help, f"{name} {param.opts}"


def test_every_argument_is_named_in_its_help():
    for name, command in leaves():
        usage = " ".join(command.collect_usage_pieces(click.Context(command)))
        for param in command.params:
            if isinstance(param, click.Argument):
                assert param.make_metavar(click.Context(command)) in usage, name


@pytest.mark.spec("CLI-2")
def test_every_command_takes_a_store_and_every_one_that_prints_data_takes_json():
    for name, command in leaves():
        options = {option for param in command.params for option in param.opts}
        assert "--store" in options or name in {"demo", "conformance", "move", *PRINTS_A_FILE}, name
        assert "--json" in options or name in {*PRINTS_NO_DATA, *PRINTS_A_FILE}, name


def test_the_help_of_every_command_can_be_read(cli_):
    for name in COMMANDS:
        found = cli_(name, "--help")
        assert found.exit_code == 0
        assert COMMANDS[name].help in " ".join(found.stdout.split())


def test_the_bare_command_lists_the_commands(cli_):
    """The first thing that anyone types."""
    bare, asked = cli_(store=False), cli_("--help", store=False)
    assert (bare.exit_code, bare.stdout, bare.stderr) == (0, asked.stdout, "")
    assert set(COMMANDS) <= {line.split()[0] for line in bare.stdout.splitlines() if line.strip()}


def test_an_unknown_command_is_refused_with_the_nearest_one(cli_):
    assert cli_.refused("strat", code=2).endswith("did you mean stats or start?")
    assert cli_.refused("help", code=2).endswith("did you mean --help?")
    assert cli_.refused("list", code=2).endswith("did you mean ls?")


def test_a_wrong_call_is_one_line_that_names_its_help(cli_):
    line = cli_.refused("start", code=2)
    assert line == "holdfast: missing argument 'NAME' (see `cli start --help`)"
    assert "--wat" in cli_.refused("ls", "--wat", code=2)
