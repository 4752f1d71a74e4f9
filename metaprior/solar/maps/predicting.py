"""``metaprior predict``: a learned prior, a few recent windows of a place to adapt to, and the frames of now.

    support frames -> windows known by the issue time -> adapted posterior \\
    input frames   -> the last input_len of them       -> forecast in the frames' own units -> file

Nothing later than the issue time is looked at, also where the archives go on.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from metaprior.forecasts import GaussianForecast
from metaprior.posterior import Posterior
from metaprior.runs.config import SOLAR_TASKS
from metaprior.runs.finish import learned
from metaprior.runs.folder import RunFolder
from metaprior.runs.opening import described_frames
from metaprior.solar.maps.archives.value_units import units_or_words
from metaprior.solar.maps.forecast_file import write_forecast
from metaprior.solar.maps.recent_frames import (
    Forecaster,
    Given,
    Wanted,
    given_frames,
    minute,
    place_of,
    read,
    valid_times,
    where,
)
from metaprior.solar.maps.sources import units_from_json
from metaprior.solar.maps.units import Values
from metaprior.solar.maps.windows import Times
from metaprior.tasks.task import Examples
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, tensors_digest

Say = Callable[[str], None]


def predict(wanted: Wanted, say: Say) -> None:
    """Adapt the run's prior to the support frames, forecast what follows the input frames, write it.

    The ranks of a team share the weight samples, and rank 0 writes. All have to see the run's folder and the frames.
    """
    team = current_team()
    team.on_first(lambda: _check_out(wanted))
    forecaster = _loaded(wanted.run, wanted.options)
    given = _given_to_all(forecaster, wanted)
    posterior, _ = team.attempt(lambda: _adapted(forecaster, given, wanted), lambda _: None)
    forecast = _forecast(forecaster, posterior, given, wanted)
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


def _loaded(folder: Path, options: Mapping[str, object]) -> Forecaster:
    run = RunFolder(folder)
    config, learner = learned(run, options=options)
    if not config.is_solar:
        raise ValueError(
            f"{folder} is a run on tasks.kind {config.tasks.kind!r}; metaprior predict is for runs on frames "
            f"({' or '.join(map(repr, SOLAR_TASKS))})"
        )
    content = current_team().on_first(lambda: described_frames(run))
    return Forecaster(config, learner, units_from_json(content["units"]), content["cadence"], content)


def _given_to_all(forecaster: Forecaster, wanted: Wanted) -> Given:
    """Every rank reads the frames; raises if they are not the same for all."""
    team = current_team()
    if team.size == 1:
        return given_frames(forecaster, wanted, progress=True)
    given, digests = team.attempt(
        lambda: given_frames(forecaster, wanted, progress=team.first), lambda given: _digests(forecaster, given)
    )
    team.on_first(lambda: refuse_disagreement(digests))
    return given


def _digests(forecaster: Forecaster, given: Given) -> dict[str, str]:
    """The same for the same frames."""
    windows = [read(given.support, start, forecaster.length) for start in given.starts]
    seen = read(given.inputs, _first_input(forecaster, given), forecaster.tasks["input_len"])
    return {
        "frames of --support": tensors_digest(map(torch.from_numpy, windows)),
        "frames of --inputs": tensors_digest([torch.from_numpy(seen)]),
    }


def _adapted(forecaster: Forecaster, given: Given, wanted: Wanted) -> Posterior:
    if not given.starts:
        return forecaster.learner.prior
    x, y = zip(*(_example(forecaster, given.support, start) for start in given.starts), strict=True)
    return forecaster.learner.adapt(Examples(torch.stack(x), torch.stack(y)), wanted.steps, seed=wanted.seed)


def _example(forecaster: Forecaster, frames: xr.DataArray, start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of a window."""
    times, count = frames["time"].values[start : start + forecaster.length], forecaster.tasks["input_len"]
    seen = forecaster.units.encode(read(frames, start, forecaster.length), times, place_of(frames))
    return _with_known(forecaster, frames, seen[:count], times[count:]), torch.from_numpy(seen[count:])


def _with_known(forecaster: Forecaster, frames: xr.DataArray, seen: Values, targets: Times) -> torch.Tensor:
    height, width = frames.shape[1:]
    known = forecaster.units.known(targets, place_of(frames), (height, width))
    return torch.from_numpy(np.concatenate([seen, known]))


def _first_input(forecaster: Forecaster, given: Given) -> int:
    times = given.inputs["time"].values
    return int(np.flatnonzero(times == given.issued)[0]) + 1 - int(forecaster.tasks["input_len"])


def _forecast(forecaster: Forecaster, posterior: Posterior, given: Given, wanted: Wanted) -> GaussianForecast:
    """Of one window, in the frames' own units: means (S, 1, L, Y, X)."""
    inputs, first, count = given.inputs, _first_input(forecaster, given), forecaster.tasks["input_len"]
    times, valid = inputs["time"].values[first : first + count], valid_times(given.issued, forecaster)
    seen = forecaster.units.encode(read(inputs, first, count), times, place_of(inputs))
    x = _with_known(forecaster, inputs, seen, valid)
    forecast = posterior.predict(x[None], samples=wanted.samples, seed=wanted.seed)
    if not isinstance(forecast, GaussianForecast):
        raise TypeError(f"maps are forecast with a Gaussian likelihood; got a {type(forecast).__name__}")
    loc, scale = (torch.from_numpy(part) for part in forecaster.units.decoding(valid, place_of(inputs)))
    return forecast.rescaled(loc, scale)


def _comment(forecaster: Forecaster, given: Given, steps: int | None) -> str:
    if not given.starts:
        return "forecast of the prior itself: there was no window to adapt to"
    times = given.support["time"].values
    count = forecaster.config.inner.steps if steps is None else steps
    first, last = minute(times[given.starts[0]]), minute(times[given.starts[-1] + forecaster.length - 1])
    return f"adapted to {len(given.starts)} windows from {first} to {last} with {count} steps"


def _said(forecaster: Forecaster, given: Given, wanted: Wanted) -> list[str]:
    valid = [minute(time) for time in valid_times(given.issued, forecaster)]
    found, k_shot, inputs = len(given.starts), forecaster.tasks["k_shot"], given.inputs
    units = units_or_words(inputs.attrs["units"])
    few = f" ({k_shot} were wanted)" if 0 < found < k_shot else ""
    none = f"; no window of {forecaster.length} frames without a gap, in daylight and over by the issue time"
    return [
        f"support: {_comment(forecaster, given, wanted.steps)}{few if found else none}",
        f"issued:  {minute(given.issued)}, from {forecaster.tasks['input_len']} frames of {where(inputs)}",
        f"valid:   {', '.join(valid)}",
        f"written: {wanted.out} (mean, std, epistemic, aleatoric and quantiles in {units})",
    ]
