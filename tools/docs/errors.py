"""The page of errors: their tree, with the attributes of each."""

from __future__ import annotations

from collections.abc import Iterator

import holdfast
from holdfast import errors
from tools.docs import text
from tools.docs.members import set_in_init


def _line(cls: type[errors.HoldfastError]) -> str:
    names = [f"`{attribute.name}`" for attribute in set_in_init(cls)]
    attributes = f" Attributes: {', '.join(names)}." if names else ""
    public = "" if getattr(holdfast, cls.__name__, None) is cls else " Only in `holdfast.errors`."
    return f"`{cls.__name__}`: {text.first_words(cls)}{attributes}{public}"


def _tree(cls: type[errors.HoldfastError], depth: int = 0) -> Iterator[str]:
    # Four spaces: both git hosts and the site take that for a nested list.
    yield f"{'    ' * depth}- {_line(cls)}"
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child, depth + 1)


def page() -> str:
    return text.page(
        "Errors",
        "`holdfast.errors`",
        "`holdfast` offers these names, and so does `holdfast.errors`. "
        "Catching an error also catches the errors that are indented below it.",
        "\n".join(_tree(errors.HoldfastError)),
    )
