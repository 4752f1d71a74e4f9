import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.hierarchy.hyper_posterior import fit_psi
from metaprior.likelihoods import NOISE_RHO
from metaprior.stack_descent import SharedParameters

SIZES = (2, 2, 2, 7)


def tasks() -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    return {f"task {i}": (draw(size, 1), draw(size, 1) + i) for i, size in enumerate(SIZES)}


def line() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(1, 1, dtype=torch.float64)


@pytest.mark.parametrize("task_batch", [1, 3, 4, 10])
def test_gradients_by_what_is_shared_add_up_to_that_of_all_data(
    task_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of different sizes, in rounds and stacks of different sizes: each observation counts the same.

    Weights are as good as certain and nothing moves, so that the sum over an epoch is known exactly.
    """
    seen: dict[str, Tensor] = {}

    def step(self: SharedParameters, lr: float) -> None:
        for name, value in self.values.items():
            assert value.grad is not None
            seen[name] = seen.get(name, torch.zeros_like(value)) + value.grad
            value.grad = None

    monkeypatch.setattr(SharedParameters, "step", step)
    net = line()
    theta = mp.WeightDistribution(torch.zeros(1).double(), torch.zeros(1).double(), {})
    hvi = mp.HierarchicalVI(
        net, mp.Gaussian(), hyperprior=theta, stochastic="weight", relative_sigma=1e-12, standardize=False
    )
    hvi.fit(tasks(), epochs=1, local_steps=1, task_batch=task_batch, lr=1e-300, progress=False)
    expected = gradient_per_observation(net, hvi)
    times = len(SIZES) / min(task_batch, len(SIZES))
    assert set(seen) == {"bias", NOISE_RHO}
    for name, value in seen.items():
        torch.testing.assert_close(value, times * expected[name], rtol=1e-9, atol=1e-12)


def gradient_per_observation(net: nn.Module, hvi: mp.HierarchicalVI) -> dict[str, Tensor]:
    rho = hvi.prior_predictive().weights.plain[NOISE_RHO].clone().requires_grad_()
    x, y = (torch.cat(parts) for parts in zip(*tasks().values(), strict=True))
    nll = mp.Gaussian().nll(net(x), y, {NOISE_RHO: rho}).sum() / sum(SIZES)
    bias, noise = torch.autograd.grad(nll, (net.get_parameter("bias"), rho))
    return {"bias": bias, NOISE_RHO: noise}


def test_an_epoch_visits_every_task_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    hvi = mp.HierarchicalVI(line(), mp.Gaussian(), standardize=False)
    visited: list[int] = []
    write = hvi.posteriors.write

    def watched(index: int, record: Tensor, **known: float) -> None:
        visited.append(index)
        write(index, record, **known)

    monkeypatch.setattr(hvi.posteriors, "write", watched)
    hvi.fit(tasks(), epochs=6, local_steps=2, task_batch=1, progress=False)
    epochs = [tuple(visited[i : i + 4]) for i in range(0, 24, 4)]
    assert len(visited) == 24
    assert {tuple(sorted(epoch)) for epoch in epochs} == {(0, 1, 2, 3)}
    assert len(set(epochs)) > 1
    assert {entry.steps for entry in hvi.posteriors.entries} == {12}


@pytest.mark.parametrize("task_batch", [1, 3, 10])
def test_running_sums_are_those_of_the_posteriors_in_the_store(task_batch: int) -> None:
    hvi = mp.HierarchicalVI(line(), mp.Gaussian(), standardize=False)
    hvi.fit(tasks(), epochs=5, local_steps=2, task_batch=task_batch, progress=False)
    weights = [hvi.posterior(name).weights for name in hvi.task_names_]
    sums = hvi._fitted().sums
    assert sums.tasks == 4
    torch.testing.assert_close(sums.first, torch.stack([q.mu for q in weights]).sum(0), rtol=1e-12, atol=1e-12)
    squares = torch.stack([q.mu**2 + q.sigma**2 for q in weights]).sum(0)
    torch.testing.assert_close(sums.second, squares, rtol=1e-12, atol=1e-12)


def test_a_fit_ends_with_the_best_psi_for_its_posteriors() -> None:
    """However short it was: more sweeps change nothing."""
    hvi = mp.HierarchicalVI(line(), mp.Gaussian(), standardize=False).fit(
        tasks(), epochs=1, local_steps=1, progress=False
    )
    more = fit_psi(hvi.psi_, hvi._fitted().sums, mp.GaussianHyperprior(), 500)
    for one, other in zip(hvi.psi_, more, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_what_is_shared_is_learned_from_all_tasks() -> None:
    """A slope for each task, one offset and one noise scale for all: both are found within 15 %."""
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    data = {}
    for i, size in enumerate((10, 10, 10, 40, 40)):
        x = draw(size, 1)
        data[f"task {i}"] = (x, 2.0 + draw(1) * x + 0.3 * draw(size, 1))
    hvi = mp.HierarchicalVI(line(), mp.Gaussian(), stochastic="weight", standardize=False)
    hvi.fit(data, epochs=40, local_steps=3, lr=0.1, samples=2, progress=False)
    plain = hvi.prior_predictive().weights.plain
    assert float(plain["bias"]) == pytest.approx(2.0, rel=0.05)
    assert float(torch.nn.functional.softplus(plain[NOISE_RHO])) == pytest.approx(0.3, rel=0.15)
