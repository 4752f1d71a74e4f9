"""``metaprior predict``: a learned prior, a few recent windows of a place to adapt to, and the frames of now.

    support frames -> windows known by the issue time -> adapted posterior \\
    input frames   -> the last input_len of them       -> forecast in the frames' own units -> file

Nothing later than the issue time is looked at, also where the archives go on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr

from metaprior.forecasts import GaussianForecast
from metaprior.methods.meta_learner import MetaLearner
from metaprior.posterior import Posterior
from metaprior.runs.config import Config
from metaprior.runs.finish import learned
from metaprior.runs.fitting import least_pixels
from metaprior.runs.folder import RunFolder
from metaprior.runs.opening import SOLAR
from metaprior.solar.door import cadence_of
from metaprior.solar.forecast_file import write_forecast
from metaprior.solar.frames import open_frames
from metaprior.solar.sources import check_irradiance, units_from_json
from metaprior.solar.tasks import is_bright, lowest_sun
from metaprior.solar.units import ClearSkyIndex, Place, Units, Values
from metaprior.solar.windows import Times, gapless_starts
from metaprior.tasks.task import Examples
from metaprior.team import Team
from metaprior.team.agreement import refuse_disagreement, tensors_digest

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is asked for on the command line.

    ``place`` is the first row and column of a patch as large as the run's, None the whole frame; ``at`` the time
    of the last input frame, None the archive's last.
    """

    run: Path
    support: Path
    inputs: Path
    out: Path
    samples: int = 20
    steps: int | None = None
    place: tuple[int, int] | None = None
    at: str | None = None
    variable: str | None = None
    overwrite: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Forecaster:
    """A run's prior, and how it sees frames."""

    config: Config
    learner: MetaLearner
    units: Units
    cadence: str
    trained_on: dict[str, Any]
    """What ``solar.json`` says about the frames of the run."""

    @property
    def tasks(self) -> dict[str, Any]:
        """``[tasks]`` of the run."""
        return dict(self.config.tasks.arguments)

    @property
    def length(self) -> int:
        """Frames of a window."""
        return int(self.tasks["input_len"] + self.tasks["target_len"])


@dataclass(frozen=True)
class Given:
    """The frames that a forecast is made of; ``starts`` are the first ones of the windows to adapt to."""

    inputs: xr.DataArray
    issued: np.datetime64
    support: xr.DataArray
    starts: list[int]


def predict(
    wanted: Wanted,
    say: Say,
    *,
    team: Team = Team(),  # noqa: B008 (has no state)
) -> None:
    """Adapt the run's prior to the support frames, forecast what follows the input frames, write it.

    The ranks of a team share the weight samples, and rank 0 writes. All have to see the run's folder and the frames.
    """
    team.on_first(lambda: _check_out(wanted))
    forecaster = _loaded(wanted.run, team)
    given = _given_to_all(forecaster, wanted, team)
    posterior, _ = team.attempt(lambda: _adapted(forecaster, given, wanted), lambda _: None)
    forecast = _forecast(forecaster, posterior, given, wanted, team)
    team.on_first(lambda: _write(forecaster, forecast, given, wanted))
    for line in _said(forecaster, given, wanted):
        say(line)


def _write(forecaster: Forecaster, forecast: GaussianForecast, given: Given, wanted: Wanted) -> None:
    about: dict[str, str | float | int] = {
        "support_windows": len(given.starts),
        "comment": _comment(forecaster, given, wanted.steps),
    }
    write_forecast(
        wanted.out,
        forecast,
        issued=np.array([given.issued]),
        cadence=forecaster.cadence,
        like=given.inputs,
        attrs=about,
        overwrite=wanted.overwrite,
    )


def _check_out(wanted: Wanted) -> None:
    """Before anything is computed."""
    if wanted.out.suffix not in (".nc", ".zarr"):
        raise ValueError(f"--out {wanted.out}: a forecast's file ends in .nc or .zarr")
    if wanted.out.exists() and not wanted.overwrite:
        raise FileExistsError(f"{wanted.out} is there already; give another --out, or --overwrite to replace it")
    if not wanted.out.parent.is_dir():
        raise FileNotFoundError(f"--out {wanted.out}: the folder {wanted.out.parent} is not there; make it first")
    if wanted.samples < 2:
        raise ValueError(f"--samples has to be at least 2 (a spread is told from them), got {wanted.samples}")


def _loaded(folder: Path, team: Team) -> Forecaster:
    run = RunFolder(folder)
    config, learner = learned(run, team=team)
    if not config.is_solar:
        raise ValueError(
            f"{folder} is a run on tasks.kind {config.tasks.kind!r}; metaprior predict is for runs on frames "
            '("frames" or "simulated")'
        )
    content = team.on_first(lambda: run.read_json(SOLAR))
    return Forecaster(config, learner, units_from_json(content["units"]), content["cadence"], content)


def _given_to_all(forecaster: Forecaster, wanted: Wanted, team: Team) -> Given:
    """Every rank reads the frames; raises if they are not the same for all."""
    if team.size == 1:
        return _given(forecaster, wanted, progress=True)
    given, digests = team.attempt(
        lambda: _given(forecaster, wanted, progress=team.first), lambda given: _digests(forecaster, given)
    )
    team.on_first(lambda: refuse_disagreement(digests))
    return given


def _digests(forecaster: Forecaster, given: Given) -> dict[str, str]:
    """The same for the same frames."""
    windows = [_read(given.support, start, forecaster.length) for start in given.starts]
    seen = _read(given.inputs, _first_input(forecaster, given), forecaster.tasks["input_len"])
    return {
        "frames of --support": tensors_digest(map(torch.from_numpy, windows)),
        "frames of --inputs": tensors_digest([torch.from_numpy(seen)]),
    }


def _given(forecaster: Forecaster, wanted: Wanted, *, progress: bool) -> Given:
    inputs = _patch(_opened(forecaster, wanted, "inputs", progress), forecaster, wanted.place)
    _check_size(inputs, forecaster.config)
    issued = issue_time(inputs, forecaster, wanted.at)
    support = _patch(_opened(forecaster, wanted, "support", progress), forecaster, wanted.place)
    _check_same_place(support, inputs)
    return Given(inputs, issued, support, support_starts(support, forecaster, issued))


def _opened(
    forecaster: Forecaster, wanted: Wanted, which: Literal["inputs", "support"], progress: bool
) -> xr.DataArray:
    path = wanted.inputs if which == "inputs" else wanted.support
    variable = wanted.variable or (
        None if path.is_dir() and path.suffix != ".zarr" else forecaster.tasks.get("variable")
    )
    try:
        on_bad = forecaster.tasks.get("on_bad", "raise")
        frames = open_frames(path, variable=variable, cadence=forecaster.cadence, on_bad=on_bad, progress=progress)
        if isinstance(forecaster.units, ClearSkyIndex):
            check_irradiance(frames)
        _check_units(frames, forecaster.trained_on["value_units"])
    except ValueError as error:
        raise ValueError(f"--{which} {error} (the run was trained on frames every {forecaster.cadence})") from None
    # Day and night are told by the range of the run's archive, not by that of a few frames.
    seen = {name: forecaster.trained_on[name] for name in ("data_min", "data_max")}
    return frames.assign_attrs(seen)


def _check_units(frames: xr.DataArray, expected: str) -> None:
    if frames.attrs["units"] != expected:
        raise ValueError(
            f"{frames.attrs['source']}: values are in {frames.attrs['units']!r}, the run was trained on {expected!r}"
        )


def _patch(frames: xr.DataArray, forecaster: Forecaster, place: tuple[int, int] | None) -> xr.DataArray:
    if place is None:
        return frames
    size, (y, x) = forecaster.tasks["patch"], place
    height, width = frames.shape[1:]
    if not size:
        raise ValueError("--place is for runs on patches; this one was trained on whole frames (tasks.patch 0)")
    if not (0 <= y <= height - size and 0 <= x <= width - size):
        raise ValueError(
            f"--place {y},{x}: a patch of {size} pixels does not lie within frames of {height} x {width}; the first "
            f"row and column are from 0,0 to {height - size},{width - size}"
        )
    return frames[:, y : y + size, x : x + size]


def _check_size(inputs: xr.DataArray, config: Config) -> None:
    least = least_pixels(config.model)
    if min(inputs.shape[1:]) < least:
        raise ValueError(
            f"--inputs {inputs.attrs['source']}: frames of {inputs.shape[1]} x {inputs.shape[2]} pixels are too small; "
            f"the run's network (model.levels {config.model.arguments['levels']}) needs at least {least} each way"
        )


def _check_same_place(support: xr.DataArray, inputs: xr.DataArray) -> None:
    """What is adapted to has to be the place that is forecast."""
    same = support.shape[1:] == inputs.shape[1:] and all(
        (name in support.coords) == (name in inputs.coords)
        and (name not in inputs.coords or np.allclose(support[name], inputs[name], atol=1e-3))
        for name in ("latitude", "longitude")
    )
    if not same:
        raise ValueError(
            f"--support {support.attrs['source']} and --inputs {inputs.attrs['source']} are not of the same place: "
            f"{_where(support)}, and {_where(inputs)}"
        )


def _where(frames: xr.DataArray) -> str:
    text = f"{frames.shape[1]} x {frames.shape[2]} pixels"
    for name in ("latitude", "longitude"):
        if name in frames.coords:
            values = frames[name].values
            text += f", {name} {values.min():g} to {values.max():g}"
    return text


def _place(frames: xr.DataArray) -> Place:
    if not {"latitude", "longitude"} <= set(frames.coords):
        return Place(None, None)
    return Place(frames["latitude"].values, frames["longitude"].values)


def _read(frames: xr.DataArray, start: int, count: int) -> Values:
    return np.asarray(frames.variable[start : start + count].values, np.float32)


def issue_time(inputs: xr.DataArray, forecaster: Forecaster, at: str | None) -> np.datetime64:
    """The time of the last input frame, with enough frames before it, all in daylight, and daylight to come."""
    times, count, source = inputs["time"].values, forecaster.tasks["input_len"], inputs.attrs["source"]
    (found,) = np.nonzero(times == _moment(at)) if at else (np.array([len(times) - 1]),)
    if not len(found):
        raise ValueError(f"--inputs {source}: there is no frame at {at}; frames are from {times[0]} to {times[-1]}")
    last = int(found[0])
    issued, first = times[last], last + 1 - count
    if first not in gapless_starts(times, cadence_of(forecaster.cadence), count):
        raise ValueError(
            f"--inputs {source}: the forecast issued at {_text(issued)} needs the {count} frames up to then, one every "
            f"{forecaster.cadence}, and some are missing; give them, or another time with --at"
        )
    values = _read(inputs, first, count)
    if not np.isfinite(values).all():
        raise ValueError(
            f"--inputs {source}: values are missing in the {count} frames up to {_text(issued)}; another --at may do"
        )
    _check_daylight(inputs, values, times[first : last + 1], forecaster)
    chosen: np.datetime64 = issued
    return chosen


def _moment(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "ns")
    except ValueError:
        raise ValueError(f"--at takes a time in UTC such as 2025-04-20T10:30, got {text!r}") from None


def _check_daylight(inputs: xr.DataArray, values: Values, times: Times, forecaster: Forecaster) -> None:
    """All frames of a window were in daylight in training, those to forecast included."""
    source, least = inputs.attrs["source"], forecaster.tasks["min_elevation"]
    window = np.concatenate([times, _valid_times(times[-1], forecaster)])
    lowest = lowest_sun(window, _place(inputs))
    if lowest is not None and lowest < least:
        raise ValueError(
            f"--inputs {source}: from {_text(window[0])} to {_text(window[-1])}, the frames to see and to forecast, "
            f"the sun goes down to {lowest:.1f} degrees, and the run was trained on windows of at least {least:g} "
            "(tasks.min_elevation); give another time with --at"
        )
    if lowest is None and not is_bright(values, inputs):
        raise ValueError(
            f"--inputs {source}: it is dark in some of the frames from {_text(times[0])} to {_text(times[-1])}; give "
            "another time with --at"
        )


def _valid_times(issued: np.datetime64, forecaster: Forecaster) -> Times:
    steps = np.arange(1, forecaster.tasks["target_len"] + 1)
    later: Times = issued + steps * cadence_of(forecaster.cadence)
    return later


def support_starts(support: xr.DataArray, forecaster: Forecaster, issued: np.datetime64) -> list[int]:
    """First frames of up to k_shot windows in daylight that were over by the issue time, in order of time.

    The most recent ones of which no two have a target frame in common; where these are too few, the most recent of the
    others too.
    """
    times, length, wanted = support["time"].values, forecaster.length, int(forecaster.tasks["k_shot"])
    starts = gapless_starts(times, cadence_of(forecaster.cadence), length)
    latest_first = starts[times[starts + length - 1] <= issued][::-1].tolist()
    chosen: list[int] = []
    for apart in (int(forecaster.tasks["target_len"]), 1):
        for start in latest_first:
            if len(chosen) == wanted:
                break
            if all(abs(start - other) >= apart for other in chosen) and _is_usable(support, start, forecaster):
                chosen.append(start)
    return sorted(chosen)


def _is_usable(support: xr.DataArray, start: int, forecaster: Forecaster) -> bool:
    """Whether a window is in daylight and has no missing value."""
    times = support["time"].values[start : start + forecaster.length]
    lowest = lowest_sun(times, _place(support))
    if lowest is not None and lowest < forecaster.tasks["min_elevation"]:
        return False
    values = _read(support, start, forecaster.length)
    return bool(np.isfinite(values).all()) and (lowest is not None or is_bright(values, support))


def _adapted(forecaster: Forecaster, given: Given, wanted: Wanted) -> Posterior:
    if not given.starts:
        return forecaster.learner.prior
    x, y = zip(*(_example(forecaster, given.support, start) for start in given.starts), strict=True)
    return forecaster.learner.adapt(Examples(torch.stack(x), torch.stack(y)), wanted.steps, seed=wanted.seed)


def _example(forecaster: Forecaster, frames: xr.DataArray, start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of a window."""
    times, count = frames["time"].values[start : start + forecaster.length], forecaster.tasks["input_len"]
    seen = forecaster.units.encode(_read(frames, start, forecaster.length), times, _place(frames))
    return _with_known(forecaster, frames, seen[:count], times[count:]), torch.from_numpy(seen[count:])


def _with_known(forecaster: Forecaster, frames: xr.DataArray, seen: Values, targets: Times) -> torch.Tensor:
    height, width = frames.shape[1:]
    known = forecaster.units.known(targets, _place(frames), (height, width))
    return torch.from_numpy(np.concatenate([seen, known]))


def _first_input(forecaster: Forecaster, given: Given) -> int:
    times = given.inputs["time"].values
    return int(np.flatnonzero(times == given.issued)[0]) + 1 - int(forecaster.tasks["input_len"])


def _forecast(
    forecaster: Forecaster, posterior: Posterior, given: Given, wanted: Wanted, team: Team
) -> GaussianForecast:
    """Of one window, in the frames' own units: means (S, 1, L, Y, X)."""
    inputs, first, count = given.inputs, _first_input(forecaster, given), forecaster.tasks["input_len"]
    times, valid = inputs["time"].values[first : first + count], _valid_times(given.issued, forecaster)
    seen = forecaster.units.encode(_read(inputs, first, count), times, _place(inputs))
    x = _with_known(forecaster, inputs, seen, valid)
    forecast = posterior.predict(x[None], samples=wanted.samples, seed=wanted.seed, team=team)
    if not isinstance(forecast, GaussianForecast):
        raise TypeError(f"maps are forecast with a Gaussian likelihood; got a {type(forecast).__name__}")
    loc, scale = (torch.from_numpy(part) for part in forecaster.units.decoding(valid, _place(inputs)))
    return forecast.rescaled(loc, scale)


def _comment(forecaster: Forecaster, given: Given, steps: int | None) -> str:
    if not given.starts:
        return "forecast of the prior itself: there was no window to adapt to"
    times = given.support["time"].values
    count = forecaster.config.inner.steps if steps is None else steps
    first, last = _text(times[given.starts[0]]), _text(times[given.starts[-1] + forecaster.length - 1])
    return f"adapted to {len(given.starts)} windows from {first} to {last} with {count} steps"


def _said(forecaster: Forecaster, given: Given, wanted: Wanted) -> list[str]:
    valid = [_text(time) for time in _valid_times(given.issued, forecaster)]
    found, k_shot, inputs = len(given.starts), forecaster.tasks["k_shot"], given.inputs
    few = f" ({k_shot} were wanted)" if 0 < found < k_shot else ""
    none = f"; no window of {forecaster.length} frames without a gap, in daylight and over by the issue time"
    return [
        f"support: {_comment(forecaster, given, wanted.steps)}{few if found else none}",
        f"issued:  {_text(given.issued)}, from {forecaster.tasks['input_len']} frames of {_where(inputs)}",
        f"valid:   {', '.join(valid)}",
        f"written: {wanted.out} (mean, std, epistemic, aleatoric and quantiles in {inputs.attrs.get('units', '1')})",
    ]


def _text(time: np.datetime64) -> str:
    return f"{str(time.astype('datetime64[m]')).replace('T', ' ')} UTC"
