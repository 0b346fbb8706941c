"""Hooks of mkdocs: add the generated reference of the client, and links to files of the repository."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads this file by its path

from client_api import client_api

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\.?/[^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference of the client, which has no file."""
    files.append(File.generated(config, "client-api.md", content=client_api()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside the manual into links to the repository, or into paths without `repo_url`."""
    folder = posixpath.dirname(page.file.src_uri)

    def replace(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/"):
            return link[0]
        name = text.strip("`")
        shown = text if path.endswith(name) else f"{text} (`{path}`)"
        return (
            f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path})"
            if config.repo_url
            else shown
        )

    return _LINK.sub(replace, markdown)
