"""``metaprior predict``: adapt a run's prior to recent windows of a place, and forecast the frames that follow.

    support frames -> windows that were over by the issue time -> adapted posterior \\
    input frames   -> the last input_len of them                -> forecast in the units of the frames -> file
"""

from collections.abc import Callable

import numpy as np
import torch

from metaprior.posterior import Predictive
from metaprior.runs.folder import RunFolder
from metaprior.runs.learned import learned
from metaprior.solar.maps.comparison import gaussian
from metaprior.solar.maps.forecast_file import check_forecast_path, write_forecast
from metaprior.solar.maps.forecast_inputs import (
    ForecastInputs,
    ForecastRequest,
    TrainedRun,
    described_place,
    forecast_inputs,
)
from metaprior.solar.maps.source import described_frames
from metaprior.solar.maps.task_settings import KINDS
from metaprior.solar.maps.windows import utc
from metaprior.solar.value_units import units_or_words
from metaprior.tasks.task import Examples
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, tensors_digest


def predict(request: ForecastRequest, say: Callable[[str], None]) -> None:
    """Adapt the run's prior to the support frames, forecast what follows the input frames, and write it.

    The ranks of the current team share the weight samples, and rank 0 writes. All must see the run's folder and the
    frames.
    """
    if request.samples < 2:
        raise ValueError(f"--samples must be at least 2 (a spread is estimated from them), got {request.samples}")
    team = current_team()
    team.on_first(lambda: check_forecast_path(request.out, overwrite=request.overwrite))
    run = _loaded(request)
    inputs, digests = team.attempt(lambda: forecast_inputs(run, request, progress=team.first), _digests)
    team.on_first(lambda: refuse_disagreement(digests))
    posterior, _ = team.attempt(lambda: _adapted(run, inputs, request), lambda _: None)
    reader, issue, comment = inputs.reader, inputs.issue, _comment(run, inputs, request)
    seen = reader.inputs(issue)[None]
    forecast = gaussian(posterior.predict(seen, samples=request.samples, seed=request.seed))
    written = forecast.rescaled(*reader.decoding(issue))  # means (S, 1, L, Y, X), in the units of the frames
    team.on_first(
        lambda: write_forecast(
            request.out,
            written,
            issued=np.array([reader.issued(issue)]),
            cadence=reader.frames.attrs["cadence"],
            like=reader.block(issue),
            attrs={"support_windows": len(inputs.support), "comment": comment},
            overwrite=request.overwrite,
        )
    )
    for line in _summary(run, inputs, request, comment):
        say(line)


def _loaded(request: ForecastRequest) -> TrainedRun:
    run = RunFolder(request.run)
    options = (
        "samples",
        "steps",
        "place",
        "at",
        "variable",
        "time_pattern",
        "on_bad",
        "seed",
        "device",
    )  # that decide about the forecast
    asked = {f"--{name}": getattr(request, name) for name in options}
    config, learner = learned(run, device=request.device, options=asked)
    if config.tasks.kind not in KINDS:
        raise ValueError(
            f"{request.run} is a run on tasks.kind {config.tasks.kind!r}; metaprior predict is for runs on frames "
            f"({' or '.join(map(repr, KINDS))})"
        )
    return TrainedRun(config, learner, current_team().on_first(lambda: described_frames(run)))


def _digests(inputs: ForecastInputs) -> dict[str, str]:
    """Return digests of the frames that the forecast is made from."""
    windows = [torch.from_numpy(inputs.support_reader.read(window)) for window in inputs.support]
    seen = torch.from_numpy(inputs.reader.read(inputs.issue, inputs.reader.input_len))
    return {"frames of --support": tensors_digest(windows), "frames of --inputs": tensors_digest([seen])}


def _adapted(run: TrainedRun, inputs: ForecastInputs, request: ForecastRequest) -> Predictive:
    if not inputs.support:
        return run.learner.prior_predictive()
    x, y = zip(*map(inputs.support_reader.example, inputs.support), strict=True)
    return run.learner.adapt(Examples(torch.stack(x), torch.stack(y)), request.steps, seed=request.seed)


def _comment(run: TrainedRun, inputs: ForecastInputs, request: ForecastRequest) -> str:
    if not inputs.support:
        return "forecast of the prior itself: there was no window to adapt to"
    reader = inputs.support_reader
    steps = run.learner.task_model().steps if request.steps is None else request.steps
    first, last = utc(reader.times(inputs.support[0])[0]), utc(reader.times(inputs.support[-1])[-1])
    how = "" if steps is None else f" with {steps} steps"
    return f"adapted to {len(inputs.support)} windows from {first} to {last}{how}"


def _summary(run: TrainedRun, inputs: ForecastInputs, request: ForecastRequest, comment: str) -> list[str]:
    reader, k_shot, found = inputs.reader, run.tasks["k_shot"], len(inputs.support)
    valid = [utc(time) for time in reader.times(inputs.issue)[reader.input_len :]]
    few = f" (k_shot is {k_shot})" if found < k_shot else ""
    none = f"; no window of {reader.length} frames without a gap, in daylight and over by the issue time"
    return [
        f"support: {comment}{few if found else none}",
        f"issued:  {utc(reader.issued(inputs.issue))}, from {reader.input_len} frames of {described_place(reader)}",
        f"valid:   {', '.join(valid)}",
        f"written: {request.out} (mean, std, epistemic, aleatoric and quantiles in "
        f"{units_or_words(reader.frames.attrs['units'])})",
    ]
