"""The description of the package on an index, where links and pictures of the repository lead nowhere."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n(\*[^*]+\*\n\n)?")
"""A picture of the repository with its caption."""
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")


def without_local_links(text: str) -> str:
    """Return Markdown without pictures of the repository, and with the paths of its files in place of links to them."""
    return LINK.sub(
        lambda found: f"{found[1]} ({found[2]})" if found[1] != found[2] else found[1], PICTURE.sub("", text)
    )


class Readme(MetadataHookInterface):
    """Give the built package the README without local links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme in the package's metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_local_links(text)}
