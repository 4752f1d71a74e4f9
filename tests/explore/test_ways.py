"""The page's numbers against Python's, in node: the same scripts as in the page, without a page."""

import json
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
import torch

from metaprior import mixture
from metaprior.explore.export import exported
from metaprior.explore.page import NUMERIC, script
from metaprior.explore.problems import PROBLEMS, WAYS
from metaprior.noise import Noise
from tests.explore.reference import (
    COUNTS,
    LEVELS,
    PRECISION,
    XS,
    expected,
    largest_difference,
    learner,
    points,
    support,
)


def run(code: str, given: object) -> Any:
    """Return what a function ``run(given)`` returns, behind the page's numeric scripts."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    program = "\n".join([*map(script, NUMERIC), code, "console.log(JSON.stringify(run(JSON.parse(GIVEN))));"])
    program = f"const GIVEN = {json.dumps(json.dumps(given))};\n{program}"
    done = subprocess.run([node, "-"], input=program, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


FORECASTS = """
function run({ learner, cases, xs }) {
  const way = Ways.prepare(learner);
  return cases.map(({ points, steps }) => way.adapt(points, { steps }).at(xs));
}"""


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("way", WAYS)
def test_forecasts_are_those_of_python(problem: str, way: str) -> None:
    cases = [(count, steps) for count in COUNTS for steps in ((1, 5, 20) if way == "descent" else (5,))]
    given = [{"points": points(support(problem, count)), "steps": steps} for count, steps in cases]
    found = run(FORECASTS, {"learner": exported(learner(problem, way)), "cases": given, "xs": XS.tolist()})
    for (count, steps), own in zip(cases, found, strict=True):
        wanted = expected(problem, way, support(problem, count), steps)
        assert largest_difference(own, wanted) < PRECISION, (count, steps)


def test_without_a_step_descent_is_the_prior() -> None:
    given = [{"points": points(support("sinusoids", 5)), "steps": 0}, {"points": [], "steps": 5}]
    first, second = run(
        FORECASTS, {"learner": exported(learner("sinusoids", "descent")), "cases": given, "xs": XS.tolist()}
    )
    assert first == second


@pytest.mark.parametrize("size", [16, 40, 1761])
def test_random_numbers_are_those_of_torch(size: int) -> None:
    generator = Noise(3).fork("predict").at(sample=2).generator()
    seed = generator.initial_seed()
    found = run("const run = ({ seed, size }) => [...Numbers.normals(seed, size)];", {"seed": seed, "size": size})
    assert np.allclose(found, torch.randn(size, generator=generator).numpy(), atol=1e-5)


def test_quantiles_of_mixtures_far_apart_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture, "TOLERANCE", 1e-11)
    means, scales = torch.tensor([-30.0, 0.0, 0.5, 40.0]).double(), torch.tensor([0.01, 1.0, 0.2, 3.0]).double()
    weights = torch.tensor([0.03, 0.5, 0.4, 0.07]).double()
    wanted = mixture.quantiles(means[:, None], scales[:, None], LEVELS, weights[:, None])[:, 0]
    code = """const run = ({ means, scales, weights, levels }) =>
        Forecast.summary([{ means, scales }], weights, { loc: 0, scale: 1, factor: 1, levels }).quantiles;"""
    parts = {"means": means.tolist(), "scales": scales.tolist(), "weights": weights.tolist(), "levels": LEVELS}
    assert np.allclose(np.array(run(code, parts))[:, 0], wanted.numpy(), atol=1e-8)


def test_the_error_function_is_right_to_14_digits() -> None:
    xs = np.linspace(-7, 7, 101)
    found = run("const run = (xs) => xs.map(Forecast.erf);", xs.tolist())
    assert np.allclose(found, torch.special.erf(torch.tensor(xs)).numpy(), atol=1e-14, rtol=0)


DRAWS = """
function run({ learner, points, xs, seeds }) {
  return seeds.flatMap((seed) => {
    const posterior = Ways.prepare({ ...learner, draw_seed: seed }).adapt(points, {});
    return posterior.draws(xs, posterior.at(xs).mean);
  });
}"""


def test_draws_of_a_closed_form_have_the_spread_of_its_forecast() -> None:
    problem, examples = "sinusoids", support("sinusoids", 2)
    own = learner(problem, "closed_form")
    given = {"learner": exported(own), "points": points(examples), "xs": XS.tolist(), "seeds": list(range(0, 4000, 10))}
    draws = np.array(run(DRAWS, given))
    forecast = own.adapt(examples).predict(torch.tensor(XS, dtype=torch.float32)[:, None])
    spread = forecast.epistemic[:, 0].numpy()
    assert len(draws) == 8 * 400
    assert np.abs(draws.mean(0) - forecast.mean[:, 0].numpy()).max() < 4 * spread.max() / np.sqrt(len(draws))
    assert np.allclose(draws.std(0), spread, rtol=0.15)
