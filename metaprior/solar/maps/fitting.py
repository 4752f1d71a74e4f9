"""Sections that have to fit each other: a network for frames, and the frames it is for."""

from metaprior.runs.config import SOLAR_TASKS, Choice
from metaprior.solar.maps.task_settings import SolarTasks

NETWORKS = ("unet", "bayesian_unet")
WITH_SCALES, WITHOUT_SCALES = ("heteroscedastic", "crps"), ("gaussian",)


def misfits(model: Choice, likelihood: Choice, tasks: Choice) -> list[str]:
    """What does not fit, a line each; both keys are named."""
    if tasks.kind not in SOLAR_TASKS:
        return []
    if model.kind not in NETWORKS:
        return [f"model.kind is {model.kind!r}; tasks.kind {tasks.kind!r} are maps, for {' or '.join(NETWORKS)}"]
    settings = SOLAR_TASKS[tasks.kind](**tasks.arguments)
    return [*_lengths(model, settings), *_sizes(model, settings), *_scales(model, likelihood)]


def _lengths(model: Choice, tasks: SolarTasks) -> list[str]:
    lines = [
        f"model.{key} is {model.arguments[key]}, tasks.{key} is {getattr(tasks, key)}; they have to be the same"
        for key in ("input_len", "target_len")
        if model.arguments[key] != getattr(tasks, key)
    ]
    if model.arguments["known"] != tasks.known:
        why = "one channel for each target frame" if tasks.known else "nothing is known beforehand"
        lines.append(
            f'model.known is {model.arguments["known"]}, but with tasks.units "{tasks.units}" and tasks.target_len '
            f"{tasks.target_len} it has to be {tasks.known} ({why})"
        )
    return lines


def _sizes(model: Choice, tasks: SolarTasks) -> list[str]:
    least = least_pixels(model)
    if tasks.patch and tasks.patch < least:
        return [
            f"tasks.patch is {tasks.patch} pixels, but model.levels {model.arguments['levels']} needs at least {least}"
        ]
    return []


def least_pixels(model: Choice) -> int:
    """Pixels along each side that the network needs: it halves them at every level."""
    return int(2 ** model.arguments["levels"])


def _scales(model: Choice, likelihood: Choice) -> list[str]:
    """Whether the network gives the scales that the likelihood expects."""
    if likelihood.kind not in (*WITH_SCALES, *WITHOUT_SCALES):
        return [
            f"likelihood.kind is {likelihood.kind!r}; frames are real numbers, for "
            f"{', '.join((*WITHOUT_SCALES, *WITH_SCALES))}"
        ]
    wanted = likelihood.kind in WITH_SCALES
    if model.arguments["scales"] is not wanted:
        given, needed = (str(value).lower() for value in (model.arguments["scales"], wanted))
        return [f"model.scales is {given}, but likelihood.kind {likelihood.kind!r} needs {needed}"]
    return []
