from pathlib import Path

import pytest
import torch

import metaprior as mp
from metaprior import demo
from metaprior.noise import Noise


def test_demo_says_draws_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short_fit(x: torch.Tensor, y: torch.Tensor) -> mp.BayesByBackprop:
        bnn = mp.BayesByBackprop(mp.MLP(1, [10], 2), mp.HeteroscedasticGaussian())
        return bnn.fit(demo.as_inputs(x), y, epochs=3, progress=False)

    monkeypatch.setattr(demo, "fit", short_fit)
    said: list[str] = []
    demo.run(tmp_path, say=said.append)
    text = "\n".join(said)
    assert "Bayes by Backprop" in text
    assert "coverage_90" in text
    assert (tmp_path / "band.png").stat().st_size > 10_000
    assert mp.BayesByBackprop.load(tmp_path / "posterior").history_


def test_observations_are_replayable_and_in_range() -> None:
    x, y = demo.observations(0.0, 0.5, 100, Noise(1))
    again, _ = demo.observations(0.0, 0.5, 100, Noise(1))
    assert torch.equal(x, again)
    assert x.min() >= 0
    assert x.max() <= 0.5
    assert (y - demo.curve(x, torch.zeros(()))).abs().max() > 0
