"""A build step of the documentation site: the page of ``metaprior explore`` is a part of it."""

from typing import Any

from mkdocs.structure.files import File, Files

from metaprior.explore.page import page as explore_page

ABOUT = "explore.md"
"""The page of the documentation that tells about it."""
GENERATED = "explore-page.html"
LINK = f"""
[Open the page]({GENERATED}){{ .md-button .md-button--primary }}

<iframe class="explore" src="{GENERATED}" title="A page to play with"></iframe>
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page that the command writes to the files of the site."""
    files.append(File.generated(config, GENERATED, content=explore_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the page about it with a link to the generated page, and a window of it, below its first paragraph."""
    if page.file.src_uri != ABOUT:
        return markdown
    title, first, rest = markdown.split("\n\n", 2)
    return "\n\n".join([title, first, LINK, rest])
