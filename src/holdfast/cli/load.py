"""Loading the App that MODULE:APP names, with one clear line for every mistake."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

import holdfast
from holdfast.engine.app.app import App
from holdfast.errors import UsageError


def load_app(text: str) -> App:
    """Import MODULE:APP; the current folder comes first in the search path."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    name, _, attribute = text.partition(":")
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").replace("/", ".").strip(".")
        raise UsageError(f"{text!r} is a file: name the module, as in {module}:{attribute or 'app'}")
    return _app(_module(name), name, attribute)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"no module {name!r} in {Path.cwd()}: change to the folder that has it, or install it"
            ) from None
        raise _broken(name, error) from error
    except (ImportError, ValueError) as error:
        if not name or name.startswith("."):
            raise UsageError(f"{name!r} is not a module: write MODULE:APP, as in orders:app") from None
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error
    except SystemExit as error:
        raise UsageError(
            f"module {name!r} ends the program when it is imported (exit {error.code})"
        ) from None


def _broken(name: str, error: BaseException) -> UsageError:
    """An error that names the place in the user's code, not in the import system."""
    if isinstance(error, SyntaxError):
        return UsageError(f"module {name!r} cannot be imported: {error.filename}:{error.lineno}: {error.msg}")
    ours = str(Path(holdfast.__file__).parent)
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if "importlib" not in one.filename and not one.filename.startswith(ours)
    ]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return UsageError(f"module {name!r} cannot be imported: {place}{type(error).__name__}: {error}")


def _app(module: ModuleType, name: str, attribute: str) -> App:
    apps = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    there = f"; its Apps: {', '.join(apps)}" if apps else "; the module has no App: write app = App()"
    if not attribute:
        if len(apps) != 1:
            raise UsageError(f"name the App of {name!r}, as in {name}:{next(iter(apps), 'app')}{there}")
        return next(iter(apps.values()))
    found = getattr(module, attribute, None)
    if found is None:
        raise UsageError(f"module {name!r} has no {attribute!r}{there}")
    if not isinstance(found, App):
        raise UsageError(f"{name}:{attribute} is a {type(found).__name__}, not an App{there}")
    return found
