"""The description of the package on an index, where links and pictures of the repository lead nowhere."""

import re
from pathlib import Path

from setuptools import setup

PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n(\*[^*]+\*\n\n)?")
"""A picture of the repository with its caption."""
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")


def without_local_links(text: str) -> str:
    """Return Markdown without pictures of the repository, and with the paths of its files in place of links to them."""
    return LINK.sub(
        lambda found: f"{found[1]} ({found[2]})" if found[1] != found[2] else found[1], PICTURE.sub("", text)
    )


if __name__ == "__main__":
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    setup(long_description=without_local_links(readme), long_description_content_type="text/markdown")
