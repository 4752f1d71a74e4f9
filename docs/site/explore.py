"""A build step of the documentation site: the page of ``metaprior explore`` is a part of it."""

from typing import Any

from mkdocs.structure.files import File, Files

from metaprior.explore.page import page

ADDRESS = "explore/page.html"
"""Where docs/explore.md expects the page."""


def on_files(files: Files, config: Any) -> Files:
    """Return the files of the site with the page that the command writes."""
    files.append(File.generated(config, ADDRESS, content=page()))
    return files
