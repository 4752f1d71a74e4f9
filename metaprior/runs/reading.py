"""From TOML to a configuration: all unknown keys, wrong types and wrong values are reported at once, a line each."""

import difflib
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from pydantic import BaseModel, ValidationError, create_model

from metaprior.applications import applications
from metaprior.likelihoods import Likelihood
from metaprior.runs.config import (
    DEFAULT_KINDS,
    EXTRA_KEYS,
    KINDS,
    LISTS,
    PLAIN_SECTIONS,
    PYTHON_ONLY,
    Choice,
    Choices,
    Config,
)
from metaprior.runs.sources import TaskSettings


class ConfigError(ValueError):
    """Everything that is wrong with a configuration, one line each."""


def packaged_configs() -> dict[str, Traversable]:
    """Return the configurations of this package by name."""
    paths = [path for path in files("metaprior").joinpath("configs").iterdir() if path.name.endswith(".toml")]
    return {path.name.removesuffix(".toml"): path for path in sorted(paths, key=lambda path: path.name)}


def config_text(config: Path | str) -> str:
    """Return the text of a TOML file, or of the package's configuration of this name."""
    packaged = packaged_configs()
    path = packaged[str(config)] if str(config) in packaged and not Path(config).exists() else Path(config)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{config} cannot be read ({error.strerror}). Give a TOML file (metaprior init NAME writes one), or one of "
            f"the names {', '.join(packaged)}"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{config} is not TOML: {error}") from None


def read_config(config: Path | str, changes: Sequence[str] = ()) -> Config:
    """Return a configuration, with changes like ``meta.lr=3e-4`` (TOML values; bare words are strings).

    Args:
        config: a TOML file, or the name of a configuration of this package.
        changes: section.key=value.

    Raises:
        ConfigError: with a line for everything that is wrong.
    """
    try:
        content = tomllib.loads(config_text(config))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{config} is not TOML: {error}") from None
    problems = [problem for change in changes if (problem := _apply(content, change))]
    return parse(content, str(config), problems)


def _apply(content: dict[str, Any], change: str) -> str | None:
    """Make one change; return what is wrong with it, if anything."""
    key, equals, value = change.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (equals and dot and section and name):
        return f"--set {change}: write it like meta.lr=3e-4 (section.key=value)"
    table = content.setdefault(section, {})
    if isinstance(table, list) and section in LISTS:
        number, dot, name = name.partition(".")
        if not (dot and name and number.isdecimal() and int(number) < len(table)):
            last = f" to {section}.{len(table) - 1}.KEY" if len(table) > 1 else ""
            return f"--set {change}: [[{section}]] is a list, whose keys are {section}.0.KEY{last}"
        table = table[int(number)]
    if isinstance(table, dict):  # else it is said where the section is looked at
        table[name] = _toml_value(value.strip())
    return None


def _toml_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if list(parsed) == ["value"] else text


def as_change(key: str, value: Any) -> str:
    """Return the change that gives a key this value, as ``--set`` takes it."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{key}={text if _toml_value(text) == value else json.dumps(text)}"


def changed_text(text: str, changes: Sequence[str]) -> str:
    """Return the text of a configuration with changes made in it; comments and the order of its keys stay."""
    lines = text.splitlines()
    for change in changes:
        key, _, value = change.partition("=")
        section, _, name = key.partition(".")
        line = f"{name} = {_toml_text(_toml_value(value))}"
        begin = lines.index(f"[{section}]") + 1
        end = next((i for i in range(begin, len(lines)) if lines[i].startswith("[")), len(lines))
        own = [i for i in range(begin, end) if re.match(rf"(# )?{re.escape(name)} = ", lines[i])]
        if own:
            lines[own[0]] = line
        else:
            lines.insert(next(i for i in range(end, 0, -1) if lines[i - 1].strip()), line)
    return "\n".join(lines) + "\n"


def _toml_text(value: Any) -> str:
    """Return a value as TOML has it; strings, numbers and lists of them are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def parse(content: Mapping[str, Any], source: str, problems: Sequence[str] = ()) -> Config:
    """Return a configuration from sections and keys; ``source`` is named in errors."""
    applications()  # which add kinds of models and tasks
    sections, content = [*KINDS, *PLAIN_SECTIONS], _renamed(content)
    found = [*problems, *_unknown(content, sections, "[{}] is not a section", "sections are")]
    values: dict[str, Any] = {}
    for name in sections:
        table = content.get(name, {})
        if isinstance(table, dict):
            values[name] = _section(name, dict(table), found)
        elif name in LISTS and isinstance(table, list) and table and all(isinstance(part, dict) for part in table):
            parts = [_section(name, dict(part), found, f"{name}[{number}]") for number, part in enumerate(table)]
            values[name] = Choices(tuple(parts))
        else:
            found.append(f"{name} must be a section, [{name}] and its keys below, got {table!r}")
    if not found:
        config = Config(**values)
        settings = config.task_settings
        found = settings.misfits(config.model, config.likelihood) if isinstance(settings, TaskSettings) else []
    if found:
        raise ConfigError("\n".join([f"{source}: {len(found)} to correct", *(f"  {line}" for line in found)]))
    return config


def _renamed(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return sections under their present names: ``[inner]`` of 0.2.0 is ``[adaptation]`` of kind "descent"."""
    inner = content.get("inner")
    if not isinstance(inner, dict) or "adaptation" in content:
        return content
    return {
        **{key: value for key, value in content.items() if key != "inner"},
        "adaptation": {"kind": "descent", **inner},
    }


def _section(name: str, table: dict[str, Any], found: list[str], where: str = "") -> Any:
    """Return the section's object, or of a section with a kind the ``Choice``.

    None if something is wrong with it, which is added to ``found``, under the name ``where`` for a part of a list.
    """
    where, title = where or name, f"[[{name}]]" if where else f"[{name}]"
    kind, extra = None, EXTRA_KEYS.get(name, {})
    if name in KINDS:
        kinds, kind = KINDS[name], table.pop("kind", DEFAULT_KINDS.get(name))
        if kind not in kinds:
            given = "nothing" if kind is None else f"{kind!r}{_nearest(str(kind), kinds)}"
            found.append(f"{where}.kind must be one of {', '.join(kinds)}, got {given}")
            return None
    build = PLAIN_SECTIONS[name] if kind is None else KINDS[name][kind]
    fields = {**_fields(build), **extra}
    wrong = _unknown(table, [*(["kind"] if kind else []), *fields], f"{where}.{{}} is not known", f"{title} takes")
    try:
        schema: type[BaseModel] = create_model(name, **fields)  # type: ignore[call-overload]
        known = {key: value for key, value in table.items() if key in fields}
        # By way of JSON, where strict types allow a list for a tuple.
        checked = schema.model_validate_json(json.dumps(known, default=str), strict=True)
        arguments = {key: getattr(checked, key) for key in fields}
        with torch.device("meta"):  # only to hear what a network says about its arguments
            built = build(**{key: value for key, value in arguments.items() if key not in extra})
    except ValidationError as error:
        wrong += _wrong_types(where, title, error)
    except (ValueError, TypeError) as error:
        first = re.match(r"\w+", str(error))
        wrong.append(f"{where}.{error}" if first and first[0] in fields else f"{title} {error}")
    found += wrong
    if wrong:
        return None
    if kind is not None and name == "adaptation":
        arguments = asdict(built)  # normalised: learn_lr=True is "per_tensor"
    return built if kind is None else Choice(kind, arguments)


def _fields(build: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return type and default of every argument of a class that a configuration can give."""
    hints = get_type_hints(build.__init__)
    return {
        name: (_as_data(hints[name]), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(build).parameters.items()
        if name not in PYTHON_ONLY
    }


def _as_data(hint: Any) -> Any:
    """Return a type without the likelihoods that Python code may give in place of data."""
    kept = tuple(one for one in get_args(hint) if one is not Likelihood)
    return kept[0] if len(kept) == 1 and Likelihood in get_args(hint) else hint


def _unknown(given: Iterable[str], allowed: Sequence[str], what: str, takes: str) -> list[str]:
    return [
        f"{what.format(key)}{_nearest(key, allowed)}; {takes} {', '.join(allowed)}"
        for key in given
        if key not in allowed
    ]


def _nearest(key: str, allowed: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(allowed), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _wrong_types(where: str, title: str, error: ValidationError) -> list[str]:
    """Return one line a key; the alternatives of a union are joined."""
    allowed: dict[str, list[str]] = {}
    found: dict[str, Any] = {}
    for problem in error.errors(include_url=False):
        key = f"{where}.{problem['loc'][0]}"
        allowed.setdefault(key, []).append(problem["msg"].removeprefix("Input should be "))
        found[key] = None if problem["type"] == "missing" else problem["input"]
    return [
        f"{key} is missing; {title} needs it"
        if found[key] is None and texts == ["Field required"]
        else f"{key} must be {' or '.join(dict.fromkeys(texts))}, got {found[key]!r}"
        for key, texts in allowed.items()
    ]
