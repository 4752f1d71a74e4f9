"""Arguments of Python in messages, written as the options of a command: ``zone='+01:00'`` becomes ``--zone +01:00``."""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VALUE = r"(\{[^}]*\}|'[^']*'|\"[^\"]*\"|[\w.:+-]*\w)?"


def as_options(text: str, options: Mapping[str, str]) -> str:
    """Return a message in which arguments are options.

    Args:
        text: A message that may name arguments, as in ``Try zone=``.
        options: What to write in front of a value, by name of the argument: ``{"zone": "--zone "}``. One that takes no
            value does not end with a space or an equals sign.
    """
    names = "|".join(map(re.escape, options))

    def option(found: re.Match[str]) -> str:
        prefix, value = options[found[1]], _plain(found[2] or "")
        quoted = value if "{" in value else shlex.quote(value) if value else ""
        return f"{prefix}{quoted}".rstrip(" ") if prefix.endswith((" ", "=")) else prefix

    text = re.sub(rf"(?<![\w.-])({names})={VALUE}", option, text) if names else text
    return re.sub(r"(--[\w-]+) \(\1\)", r"\1", text)  # "overwrite=True (--overwrite)" names the option already


def _plain(value: str) -> str:
    """Return a value without the marks of Python: quotes, and those of a dictionary."""
    if value.startswith("{"):
        pairs = re.findall(r"['\"]([^'\"]*)['\"]: *['\"]([^'\"]*)['\"]", value)
        return ",".join(f"{key}={entry}" for key, entry in pairs)
    return value.strip("'\"")


@contextmanager
def messages_name_options(options: Mapping[str, str]) -> Iterator[None]:
    """Within the block, name options in the messages of errors that a user can fix."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (as_options(error.args[0], options),)
        raise
