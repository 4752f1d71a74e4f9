"""The worked examples of CONTRIBUTING.md do what the page says."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.adaptation import WAYS
from metaprior.likelihoods import LIKELIHOODS
from metaprior.runs.program import Request, train
from metaprior.runs.reading import read_config
from metaprior.runs.sources import TASKS
from metaprior.tasks.waves import Sinusoids
from tests.runs.tiny import TEXT

PAGE = Path(mp.__file__).parent.parent / "CONTRIBUTING.md"
MOST_LINES = 66
"""Lines that fit on one screen."""


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    """What the names of the page mean after its examples; what they register is forgotten afterwards."""
    found: dict[str, Any] = {"__name__": "contributing"}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    assert max(block.count("\n") for block in blocks) <= MOST_LINES
    torch.manual_seed(0)
    with contextlib.ExitStack() as after:
        for registered, kind in ((LIKELIHOODS._classes, "beta"), (WAYS, "offset"), (TASKS._classes, "slopes")):
            after.callback(registered.pop, kind, None)
        for block in blocks:
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), found)
        yield found


def test_the_likelihood_is_a_weighted_density_and_can_be_saved(names: dict[str, Any], tmp_path: Path) -> None:
    outputs, targets = torch.randn(5, 2), torch.randn(5, 1)
    plain, weighted = mp.HeteroscedasticGaussian(), names["BetaGaussian"](beta=0.5)
    _, scale = plain.mean_and_scale(outputs, 1)
    expected = scale * plain.elementwise_nll(outputs, targets, {})
    torch.testing.assert_close(weighted.elementwise_nll(outputs, targets, {}), expected)
    bnn = mp.BayesByBackprop(mp.MLP(1, [4], 2), weighted).fit(targets, targets[:, 0], epochs=2, progress=False)
    bnn.save(tmp_path)
    assert mp.load(tmp_path).likelihood == weighted


def test_the_way_of_adapting_learns_is_saved_and_needs_no_examples(names: dict[str, Any], tmp_path: Path) -> None:
    learner: mp.MetaLearner = names["learner"]
    learner.fit(Sinusoids(k_shot=5), epochs=1, tasks_per_epoch=40, meta_batch=4, progress=False, calibrate=False)
    assert float(learner.theta_.plain["offset.share"]) != 1.0
    task = Sinusoids(k_shot=5, seed=1)[0]
    adapted, before = learner.adapt(task.support), learner.prior_predictive()
    shift = adapted.predict(task.query.x).mean - before.predict(task.query.x).mean
    torch.testing.assert_close(shift, shift[:1].expand_as(shift))
    assert float(shift.abs().max()) > 0
    nothing = mp.Examples(task.support.x[:0], task.support.y[:0])
    assert torch.equal(learner.adapt(nothing).predict(task.query.x).mean, before.predict(task.query.x).mean)
    learner.save(tmp_path)
    assert mp.load(tmp_path).adaptation == names["Offset"]()


@pytest.mark.usefixtures("names")
def test_the_application_is_trained_on(tmp_path: Path) -> None:
    text = TEXT.replace('kind = "sinusoids"\nk_shot = 3\nk_query = 2', 'kind = "slopes"\nk_shot = 4')
    config = tmp_path / "slopes.toml"
    config.write_text(text)
    said: list[str] = []
    train(Request(read_config(config, []), text, tmp_path / "run", "metaprior train", progress=False), said.append)
    assert "lines through one point" in said
    assert (tmp_path / "run" / "prior").is_dir()


def test_the_benchmark_measures(names: dict[str, Any]) -> None:
    result = names["BENCHMARK"].run(quick=True, workers=0)
    assert [row["size"] for row in result.rows] == [20, 20]
    assert 0 < result.headline["coverage"] <= 1
