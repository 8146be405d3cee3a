"""The site and the pages of the Python API. `./hf check` builds the site itself, strictly."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import holdfast
from holdfast import testing
from tests.docs import pages
from tools.docs import api, drawing, groups, links, members, navigation, sequence, site, text

API = api.pages()
GROUPED = [(group, name) for group in groups.GROUPS for name in group.names]
DIAGRAM = """
sequenceDiagram
    participant U as your function
    participant S as store
    U->>S: commit
    alt it is there
        S-->>U: applied
    else it is not
        S-->>U: lost
    end
"""


class TestPythonApi:
    @pytest.mark.parametrize("name", holdfast.__all__)
    def test_every_public_name_is_in_the_list_of_names(self, name):
        assert f"[`{name}`](" in API["README.md"]

    def test_every_public_name_is_in_one_group(self):
        names = [name for _, name in GROUPED] + list(groups.ERRORS)
        assert sorted(names) == sorted([*holdfast.__all__, *testing.__all__])

    @pytest.mark.parametrize(("group", "name"), GROUPED, ids=lambda one: one if isinstance(one, str) else "")
    def test_every_public_name_has_a_heading_on_its_page(self, group, name):
        assert f"\n## `{name}`\n" in API[group.file]

    @pytest.mark.parametrize("name", holdfast.__all__)
    def test_every_public_name_is_explained(self, name):
        assert groups.NOTES.get(name) or _own_docstring(getattr(holdfast, name))

    @pytest.mark.parametrize("name", testing.__all__)
    def test_every_public_name_of_testing_is_explained(self, name):
        assert _own_docstring(getattr(testing, name))

    @pytest.mark.parametrize(("group", "name"), GROUPED, ids=lambda one: one if isinstance(one, str) else "")
    def test_every_public_method_is_explained(self, group, name):
        """The methods of a class that repeats another class are explained there."""
        cls = getattr(api.home(group), name)
        twin = groups.TWINS.get(name)
        known = {one.name for one in members.all_methods(getattr(holdfast, twin.of))} if twin else set()
        methods = members.all_methods(cls) if inspect.isclass(cls) else []
        assert [one.name for one in methods if one.name not in known and not one.text] == []

    def test_parameters_that_a_docstring_explains_become_a_list(self):
        def start(key: str, delay: float) -> None:
            """Start it.

            key: its name. delay: how long
            it waits.
            """

        assert text.prose(text.docstring(start), ["key", "delay"]) == (
            "Start it.\n\n- `key`: its name.\n- `delay`: how long it waits."
        )


class TestNavigation:
    def test_the_navigation_follows_the_headings_and_links_of_the_index(self):
        index = "## Learn\n- [one](spec.md): as [b](sql.md).\n\n## Do\n- [a](sql.md), [b](design.md): both\n"
        assert list(navigation.sections(index)) == [
            ("Learn", {"spec.md": "One"}),
            ("Do", {"sql.md": "A", "design.md": "B"}),
        ]

    def test_every_entry_is_a_file(self):
        listed = [page for _, found in navigation.sections(_index()) for page in found]
        assert "reference/api/README.md" in listed
        assert [page for page in listed if not _file(page).is_file()] == []

    def test_decisions_are_one_entry(self):
        listed = [page for _, found in navigation.sections(_index()) for page in found]
        assert [page for page in listed if page.startswith("decisions/")] == ["decisions/all.md"]


class TestLinks:
    def test_a_link_out_of_docs_leads_to_the_page_of_that_file(self):
        assert links.rewrite("[r](../../README.md#why)", "docs/guide/plans.md") == "[r](../index.md#why)"
        assert links.rewrite("[r](../hf)", "docs/design.md") == "[r](source/hf.md)"
        assert links.rewrite("[e](../examples/)", "docs/sql.md") == "[e](examples.md)"

    def test_a_link_from_the_readme_leads_into_docs(self):
        assert links.rewrite("[d](docs/design.md)", "README.md") == "[d](design.md)"

    def test_external_and_broken_links_stay_unchanged(self):
        for link in ("[a](https://example.org/x.md)", "[b](#here)", "[c](no-such-page.md)"):
            assert links.rewrite(link, "docs/sql.md") == link

    def test_code_stays_unchanged(self):
        code = "```\n[d](docs/design.md)\n```\n"
        assert links.rewrite(code, "README.md") == code

    def test_a_bar_in_code_of_a_table_has_no_backslash(self):
        assert links.rewrite(r"| `a \| b` | c \| d |", "docs/sql.md") == r"| `a | b` | c \| d |"

    def test_a_source_with_fences_is_shown_in_full(self):
        shown = links.content("tests/docs/test_site.py")
        assert shown.endswith(Path(__file__).read_text("utf-8") + "``````\n")


class TestDrawings:
    def test_a_sequence_diagram_contains_its_texts(self):
        drawn = sequence.draw(DIAGRAM)
        assert all(f">{words}<" in drawn for words in ("your function", "commit", "if it is there", "lost"))

    def test_other_diagrams_are_refused(self):
        with pytest.raises(ValueError, match="sequence diagrams only"):
            sequence.draw("graph TD\n A-->B")
        with pytest.raises(ValueError, match="Note over U"):
            sequence.draw("sequenceDiagram\n Note over U: x")

    def test_every_status_is_in_the_drawing_of_moves(self):
        assert set(drawing.PLACES) == set(holdfast.Status)

    def test_every_diagram_of_the_pages_can_be_drawn(self):
        for page in pages.PAGES:
            for block in pages.blocks(page):
                if block.language == "mermaid":
                    assert sequence.draw(block.text)


class TestOffline:
    @pytest.mark.parametrize(
        "line",
        [
            '<script src="https://cdn.example/x.js"></script>',
            "<script async src=//cdn.example/x.js></script>",
            '<link rel="stylesheet" href="http://fonts.example/css">',
            "<style>@font-face{src:url(https://fonts.example/x.woff2)}</style>",
        ],
    )
    def test_resources_from_other_hosts_are_found(self, line, tmp_path):
        (tmp_path / "page.html").write_text(f"<a href='https://example.org'>fine</a>\n{line}")
        assert len(list(site.foreign(tmp_path))) == 1

    def test_resources_of_the_site_are_accepted(self, tmp_path):
        (tmp_path / "page.html").write_text(
            '<script src="../x.js"></script><a href="https://example.org">x</a>'
        )
        assert list(site.foreign(tmp_path)) == []


def _own_docstring(thing: object) -> str:
    """Return the docstring of the thing itself, not an inherited one."""
    return (thing.__doc__ if isinstance(thing, type) or callable(thing) else type(thing).__doc__) or ""


def _index() -> str:
    return (pages.ROOT / navigation.INDEX).read_text("utf-8")


def _file(page: str) -> Path:
    """Return the file that a page of the site shows."""
    if page.startswith("source/"):  # a page of a file outside of docs/
        return pages.ROOT / page.removeprefix("source/").removesuffix(".md")
    path = next((path for path, moved in links.MOVED.items() if moved == page), f"docs/{page}")
    return pages.ROOT / path
