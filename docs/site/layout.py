"""A build step of the documentation site: pages without sections get the space of the table of contents."""

from typing import Any


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Hide the table of contents of a page that has no headings below its title; return the page as it is."""
    if not any(item.children for item in page.toc):
        page.meta["hide"] = [*page.meta.get("hide", []), "toc"]
    return html
