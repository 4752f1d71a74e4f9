import json
import math
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior import checkpoint
from metaprior.tasks.task import Examples, Task
from tests.methods.test_bayes_by_backprop import FAST, linear, linear_problem, trained

LEARNED = mp.BayesianNetwork(mp.MLP(4, [5], 1)).initial()


@pytest.mark.parametrize("prior", [mp.NormalPrior(0.5), mp.ScaleMixturePrior(0.25, 1.0, 0.01), LEARNED])
def test_prior_and_temperature_survive_saving(tmp_path: Path, prior: object) -> None:
    bnn, x = trained(mp.Gaussian(noise=0.1), prior=prior, temperature=0.3)
    bnn.save(tmp_path / "fit")
    loaded = mp.BayesByBackprop.load(tmp_path / "fit")
    assert torch.equal(loaded.predict(x).std, bnn.predict(x).std)
    assert (loaded.likelihood, loaded.temperature) == (mp.Gaussian(noise=0.1), 0.3)
    if prior is LEARNED:
        assert torch.equal(loaded.prior.mu, LEARNED.mu)
        assert torch.equal(loaded.prior.rho, LEARNED.rho)
    else:
        assert loaded.prior == prior


def test_frozen_parameters_and_pruning_survive_saving(tmp_path: Path) -> None:
    def build(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
        module[0].requires_grad_(False)
        return module

    x = torch.randn(30, 4)
    bnn = mp.BayesByBackprop(build(0), mp.Gaussian()).fit(x, x[:, 0], **FAST).prune(0.5)
    bnn.save(tmp_path)
    loaded = mp.BayesByBackprop.load(tmp_path, build(1))
    assert torch.equal(loaded.predict(x).mean, bnn.predict(x).mean), "the frozen layer is part of what was saved"
    with pytest.raises(mp.CheckpointError, match=r"were frozen when this was saved.*'0\.weight'"):
        mp.BayesByBackprop.load(tmp_path, build(1).requires_grad_(True))


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_of_this_package_are_rebuilt_in_their_type_with_their_frozen_parts(
    tmp_path: Path, dtype: torch.dtype, freeze: bool
) -> None:
    torch.manual_seed(0)
    net = mp.MLP(2, [3], 1).to(dtype)
    net.layers[0].requires_grad_(not freeze)
    x = torch.randn(20, 2)
    bnn = mp.BayesByBackprop(net, mp.Gaussian()).fit(x, x[:, 0], **FAST)
    bnn.save(tmp_path)
    assert torch.equal(mp.BayesByBackprop.load(tmp_path).predict(x).mean, bnn.predict(x).mean)


class Buffered(nn.Module):
    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x * getattr(self, "gain", 1.0))


def test_buffers_are_part_of_what_is_saved_and_of_the_structure(tmp_path: Path) -> None:
    x = torch.randn(20, 2)
    bnn = mp.BayesByBackprop(Buffered(gain=torch.tensor(3.0)), mp.Gaussian()).fit(x, x[:, 0], **FAST)
    bnn.save(tmp_path)
    again = mp.BayesByBackprop.load(tmp_path, Buffered(gain=torch.tensor(99.0)))
    assert torch.equal(again.predict(x).mean, bnn.predict(x).mean)
    for other in (Buffered(), Buffered(gain=torch.ones(2)), Buffered(gain=torch.tensor(3.0), more=torch.ones(()))):
        with pytest.raises(mp.CheckpointError, match="does not have the structure"):
            mp.BayesByBackprop.load(tmp_path, other)
    with pytest.raises(mp.CheckpointError, match=r"saved from a torch\.float32 network"):
        mp.BayesByBackprop.load(tmp_path, Buffered(gain=torch.tensor(3.0)).double())


OF_A_POSTERIOR = ["input_axes", "model", "stochastic", "likelihood", "scalar_targets", "parameters"]
DAMAGE = [*OF_A_POSTERIOR, "prior", "settings", "history"]


@pytest.mark.parametrize("key", DAMAGE)
@pytest.mark.parametrize("damage", ["missing", 3, {"kind": "other", "name": "Other"}])
def test_a_damaged_description_is_a_checkpoint_error(tmp_path: Path, key: str, damage: object) -> None:
    bnn, _ = trained()
    bnn.save(tmp_path)
    path = tmp_path / "checkpoint.json"
    description = json.loads(path.read_text())
    if damage == "missing":
        del description[key]
    elif key == "scalar_targets" or (key, damage) == ("input_axes", 3):
        return  # a valid value
    else:
        description[key] = damage
    path.write_text(json.dumps(description))
    with pytest.raises(mp.CheckpointError, match=re.escape(str(tmp_path))):
        mp.BayesByBackprop.load(tmp_path)


@pytest.mark.parametrize(
    "change", [{"mu": None}, {"loc": None}, {"rho": torch.zeros(1)}, {"mu": torch.full((31,), math.nan)}]
)
def test_missing_or_damaged_tensors_are_a_checkpoint_error(tmp_path: Path, change: dict[str, Tensor | None]) -> None:
    bnn, _ = trained()
    bnn.save(tmp_path)
    tensors, description = checkpoint.read(tmp_path, "BayesByBackprop")
    tensors = {name: value for name, value in {**tensors, **change}.items() if value is not None}
    checkpoint.write(tmp_path, "BayesByBackprop", tensors, {k: description[k] for k in DAMAGE})
    with pytest.raises(mp.CheckpointError, match=re.escape(str(tmp_path))):
        mp.BayesByBackprop.load(tmp_path)


def test_a_part_of_the_network_called_likelihood_is_saved_like_any_other(tmp_path: Path) -> None:
    def build() -> nn.Module:
        return nn.Sequential(OrderedDict(body=nn.Linear(4, 5), likelihood=nn.Linear(5, 1)))

    x = torch.randn(30, 4)
    bnn = mp.BayesByBackprop(build(), mp.Gaussian(), stochastic="body.*").fit(x, x[:, 0], **FAST)
    bnn.save(tmp_path)
    assert torch.equal(mp.BayesByBackprop.load(tmp_path, build()).predict(x).mean, bnn.predict(x).mean)


def test_numpy_numbers_as_settings_can_be_saved(tmp_path: Path) -> None:
    bnn, x = trained(
        mp.Gaussian(noise=np.array([0.5])),  # type: ignore[arg-type]
        prior=mp.NormalPrior(np.float32(0.5)),
        temperature=np.float32(0.5),
        seed=np.int64(3),
    )
    bnn.save(tmp_path)
    assert torch.equal(mp.BayesByBackprop.load(tmp_path).predict(x).mean, bnn.predict(x).mean)


def test_loading_needs_a_module_of_the_saved_structure(tmp_path: Path) -> None:
    x, y = linear_problem()
    mp.BayesByBackprop(linear(), mp.Gaussian()).fit(x, y, **FAST).save(tmp_path)
    with pytest.raises(mp.CheckpointError, match=r"first 'weight' \(saved \[1, 3\], given \[1, 4\]\)"):
        mp.BayesByBackprop.load(tmp_path, linear(4))


def maps(count: int, channels: int, seed: int) -> Tensor:
    return torch.randn(count, channels, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("random", ["norms", r"stem\..*|output\..*"])
def test_a_bayesian_unet_and_the_crps_survive_saving(tmp_path: Path, random: str) -> None:
    torch.manual_seed(0)
    net = mp.BayesianUNet(2, 3, width=2, levels=2, known=1, scales=True, random=random)
    likelihood = mp.CRPSGaussian(min_scale=0.02, weight=3.0)
    support, query = (Examples(maps(2, 3, seed), maps(2, 3, seed + 9)) for seed in (1, 2))
    learner = mp.MetaLearner(net, likelihood, standardize=False).start([Task(support, query)])
    learner.save(tmp_path)
    loaded = mp.MetaLearner.load(tmp_path)
    assert type(loaded.network.module) is mp.BayesianUNet
    assert loaded.network.module.config == net.config
    assert (loaded.network.stochastic, loaded.likelihood) == (net.stochastic, likelihood)
    mine, theirs = (which.adapt(support).predict(query.x, samples=3) for which in (learner, loaded))
    assert torch.equal(mine.means, theirs.means)
    assert torch.equal(mine.scales, theirs.scales)
