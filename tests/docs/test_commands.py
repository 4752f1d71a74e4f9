"""Commands on the pages exist, with the options that they are given."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from metaprior.cli import app
from tests.docs.pages import PAGES, README, name_of, text_of

ROOT_COMMAND: Any = typer.main.get_command(app)
COMMENT = re.compile(r"\s+#.*$")
NOTATION = str.maketrans("", "", "[]'")
"""What stands around options that may be left out, and around commands inside another command."""


def commands(page: Path) -> Iterator[str]:
    """Yield what follows ``metaprior`` in the blocks of commands of a page, and in code within a line."""
    text = re.sub(r"\\\n\s*", " ", text_of(page))
    fences = re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (.*)$", text, re.MULTILINE)
    for line in [*indented, *"\n".join(fences).splitlines(), *re.findall(r"`([^`\n]+)`", text)]:
        if found := re.match(r"(?:\$ )?(?:(?:torchrun|srun) .*-m )?metaprior( \S.*)", COMMENT.sub("", line)):
            yield found[1]


def parse(line: str) -> None:
    """Raise a usage error for a command or an option that does not exist, or that has no value."""
    words = [word for word in shlex.split(line.translate(NOTATION)) if word != "..."]
    command, context = ROOT_COMMAND, ROOT_COMMAND.context_class(ROOT_COMMAND, info_name="metaprior")
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in [*command.commands, "COMMAND"], f"there is no command {name!r}"
        if name == "COMMAND":
            return
        command = command.commands[name]
        context = command.context_class(command, info_name=name, parent=context)
    _, left, _ = command.make_parser(context).parse_args(words)
    assert left == [], f"too many arguments: {left}"


WITH_COMMANDS = [page for page in [README, *PAGES] if any(True for _ in commands(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_commands_exist_with_their_options(page: Path) -> None:
    for line in commands(page):
        parse(line)


@pytest.mark.parametrize("line", ["trian sinusoid", "train --runs folder", "plan blobs --memory", "init one two three"])
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    with pytest.raises(Exception, match=r"no command|No such option|requires an argument|too many"):
        parse(line)
