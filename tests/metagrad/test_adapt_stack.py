import torch

from metaprior.likelihoods import Gaussian
from metaprior.metagrad import Descent, Problem, adapt, adapt_stack
from metaprior.models.small import MLP
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution


def test_a_stack_is_its_support_sets_one_by_one() -> None:
    torch.manual_seed(0)
    module = MLP(2, [5], 1, activation="tanh").double()
    inner = Descent(steps=3, lr=0.05, learn_lr="per_tensor", adapt="likelihood.rho")
    problem = Problem(BayesianNetwork(module, r"layers\.2\..*"), Gaussian(), inner)
    x, y = torch.randn(4, 6, 2).double(), torch.randn(4, 6, 1).double()
    theta = problem.initial(y.flatten(0, 1))
    noises = [Noise(3).at(task=number) for number in range(4)]
    together = adapt_stack(problem, theta, Examples(x, y), noises, steps=5)
    for number, noise in enumerate(noises):
        alone = adapt(problem, theta, Examples(x[number], y[number]), noise, steps=5)
        assert isinstance(alone, WeightDistribution)
        torch.testing.assert_close(together.mu[number], alone.mu, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(together.rho[number], alone.rho, rtol=1e-12, atol=1e-14)
        for name in ("likelihood.rho",):
            torch.testing.assert_close(together.plain[name][number], alone.plain[name], rtol=1e-12, atol=1e-14)
    assert torch.equal(together.plain["layers.0.weight"], theta.plain["layers.0.weight"])


def test_a_set_that_leaves_the_finite_numbers_stays_in_its_row() -> None:
    torch.manual_seed(0)
    problem = Problem(BayesianNetwork(MLP(1, [3], 1)), Gaussian(noise=1.0), Descent(steps=2))
    x, y = torch.randn(2, 4, 1), torch.randn(2, 4, 1)
    y[1, 0] = torch.inf
    found = adapt_stack(problem, problem.initial(y[0]), Examples(x, y), [Noise(), Noise(1)])
    assert bool(found.mu[0].isfinite().all())
    assert not bool(found.mu[1].isfinite().all())
