import pytest
import torch
from torch import nn

from metaprior.adaptation.descent import DescentModel
from metaprior.likelihoods import NOISE_RHO, Gaussian
from metaprior.metagrad import Descent
from metaprior.training.optimizer import Shards, ThetaOptimizer, movable_copy
from metaprior.training.settings import MetaTraining
from metaprior.weights import WeightDistribution
from tests.training.lines import make_problem


def make_optimizer(theta: WeightDistribution, settings: MetaTraining = MetaTraining()) -> ThetaOptimizer:
    return ThetaOptimizer(DescentModel(make_problem()).groups(theta), theta, settings, Shards())


def make_theta(relative_sigma: float = 0.2) -> WeightDistribution:
    return movable_copy(make_problem().initial(torch.ones(2, 1, dtype=torch.float64), relative_sigma))


def gradients_like(theta: WeightDistribution, size: float = 1.0) -> WeightDistribution:
    generator = torch.Generator().manual_seed(1)

    def random(value: torch.Tensor) -> torch.Tensor:
        return size * torch.randn(value.shape, dtype=value.dtype, generator=generator)

    return theta.map(random)


def test_scales_are_a_group_of_their_own() -> None:
    groups = DescentModel(make_problem()).groups(make_theta())
    assert set(groups["means"]) == {"mu", "plain.0.weight", "plain.0.bias"}
    assert set(groups["scales"]) == {"rho", f"plain.{NOISE_RHO}", "log_lr"}


def test_a_points_scales_are_not_learned() -> None:
    assert set(DescentModel(make_problem()).groups(make_theta(0.0))["scales"]) == {f"plain.{NOISE_RHO}", "log_lr"}
    bare = make_problem(Descent(kl_weight=0.0), likelihood=Gaussian(noise=1.0), module=nn.Linear(1, 1), stochastic=".*")
    theta = movable_copy(bare.initial(torch.ones(2, 1), relative_sigma=0.0))
    optimizer = ThetaOptimizer(DescentModel(bare).groups(theta), theta, MetaTraining(), Shards())
    assert [group["name"] for group in optimizer._adam.param_groups] == ["means"]


RATES = {"means": 0.1, "scales": 0.1}


UNCLIPPED = 1e9


def test_leaves_are_copies() -> None:
    theta = make_theta()
    leaves = movable_copy(theta)
    for name, leaf in leaves.named().items():
        assert leaf.is_leaf
        assert leaf.requires_grad
        assert torch.equal(leaf, theta.named()[name])
        assert leaf.data_ptr() != theta.named()[name].data_ptr()


def test_only_means_decay() -> None:
    after = {}
    for decay in (0.0, 0.5):
        theta = make_theta()
        optimizer = make_optimizer(theta, MetaTraining(lr=0.1, weight_decay=decay))
        optimizer.descend(gradients_like(theta), RATES, UNCLIPPED)
        after[decay] = theta.named()
    for name, start in make_theta().named().items():
        lost = after[0.0][name] - after[0.5][name]
        if name in ("mu", "plain.0.weight", "plain.0.bias"):
            torch.testing.assert_close(lost, 0.1 * 0.5 * start, rtol=1e-9, atol=1e-14, msg=name)
        else:
            assert not lost.any(), name


@pytest.mark.parametrize("size", [1e-4, 1e3])
def test_each_groups_norm_is_clipped(size: float) -> None:
    theta = make_theta()
    grads = gradients_like(theta, size)
    expected = {
        "means": torch.cat([grads.mu, *(grads.plain[n].flatten() for n in ("0.weight", "0.bias"))]).norm(),
        "scales": torch.cat([grads.rho, grads.plain[NOISE_RHO].flatten(), grads.log_lr]).norm(),
    }
    optimizer, seen = make_optimizer(theta), {}

    def look(*_: object) -> None:
        for group in optimizer._adam.param_groups:
            seen[group["name"]] = torch.cat([p.grad.flatten() for p in group["params"]]).norm()

    optimizer._adam.register_step_pre_hook(look)
    norms = optimizer.descend(grads, RATES, 0.5)
    for name, norm in expected.items():
        assert norms[name] == pytest.approx(float(norm), rel=1e-9), "what is reported is the norm before clipping"
        assert float(seen[name]) == pytest.approx(min(0.5, float(norm)), rel=1e-5)
    assert all(tensor.grad is None for tensor in theta.named().values())


def test_a_group_without_a_learning_rate_is_left_alone_and_starts_afresh_later() -> None:
    theta = make_theta()
    optimizer = make_optimizer(theta, MetaTraining(weight_decay=0.5))
    norms = optimizer.descend(gradients_like(theta), {"scales": 0.1}, UNCLIPPED)
    assert set(norms) == {"scales"}
    before = make_theta().named()
    moved = {name for name, value in theta.named().items() if not torch.equal(value, before[name])}
    assert moved == {"rho", f"plain.{NOISE_RHO}", "log_lr"}
    assert {name.rsplit("/", 1)[0] for name, _ in optimizer.moments()} == moved
    optimizer.descend(gradients_like(theta), RATES, UNCLIPPED)
    steps = {name.rsplit("/", 1)[0]: float(value) for name, value in optimizer.moments() if name.endswith("/step")}
    assert {name: 2.0 if name in moved else 1.0 for name in before} == steps


def test_moments_are_named_after_theta() -> None:
    theta = make_theta()
    optimizer = make_optimizer(theta)
    assert dict(optimizer.moments()) == {}
    grads = gradients_like(theta)
    optimizer.descend(grads, RATES, UNCLIPPED)
    found = dict(optimizer.moments())
    assert {name.rsplit("/", 1)[1] for name in found} == {"step", "exp_avg", "exp_avg_sq"}
    torch.testing.assert_close(found["log_lr/exp_avg"], 0.1 * grads.log_lr)


def test_parameters_that_lie_in_memory_another_way_are_moved_the_same() -> None:
    """Fused AdamW takes a parameter and its gradient to lie alike."""
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        problem = make_problem(module=nn.Conv2d(3, 4, 3).double().to(memory_format=layout), stochastic="bias")
        torch.manual_seed(0)
        theta = problem.initial(torch.ones(2, 1, dtype=torch.float64), 0.2)
        plain = {"weight": torch.linspace(-1, 1, 108, dtype=torch.float64).reshape(4, 3, 3, 3)}
        theta = movable_copy(theta.replace(plain={**theta.plain, "weight": plain["weight"].to(memory_format=layout)}))
        optimizer = ThetaOptimizer(DescentModel(problem).groups(theta), theta, MetaTraining(), Shards())
        optimizer.descend(gradients_like(theta), RATES, UNCLIPPED)
        found.append(theta.plain["weight"].detach().contiguous())
    assert torch.equal(*found)
