"""Hook of mkdocs: navigation, pages for files outside of docs/, and links to those pages."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs import links, navigation


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = navigation.nav()
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for path in links.MOVED:
        found = files.get_file_from_path(path.removeprefix("docs/")) if path.startswith("docs/") else None
        if found is not None:
            files.remove(found)
    for path in links.outside():
        files.append(File.generated(config, links.page_of(path), content=links.content(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    del config, files
    return links.rewrite(markdown, _path_of(page.file.src_uri))


def _path_of(uri: str) -> str:
    """Return the file of the repository that a page shows."""
    for path, moved in links.MOVED.items():
        if uri == moved:
            return path
    if uri.startswith("source/"):
        return uri.removeprefix("source/").removesuffix(".md")
    return f"docs/{uri}"
