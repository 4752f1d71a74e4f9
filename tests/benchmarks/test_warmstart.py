import torch

from benchmarks import warmstart
from metaprior.evaluation import Evaluation
from metaprior.tasks.waves import Sinusoids
from tests.benchmarks.tiny import TINY as ALL

TINY: warmstart.Settings = ALL["warmstart"]


def test_factors_multiply_the_learned_step_sizes_and_leave_the_learner_alone() -> None:
    learner = warmstart.meta_learner(warmstart.sinusoid(TINY)).start(Sinusoids())
    before = learner.theta_.log_lr.clone()
    paced = warmstart.paced_learner(learner, warmstart.Choice(0.1, 5.0, steps=3))
    expected = 0.1 * before.exp()
    expected[-1] *= 5  # the only plain parameter, and so the last one
    torch.testing.assert_close(paced.theta_.log_lr.exp(), expected)
    assert torch.equal(learner.theta_.log_lr, before)


def _evaluation(errors: dict[int, float]) -> Evaluation:
    return Evaluation([], [{"index": index, "rmse": error} for index, error in errors.items()], {})


def test_differences_are_paired_by_task() -> None:
    one, other = _evaluation({0: 1.0, 1: 5.0, 2: 9.0}), _evaluation({1: 4.0, 0: 3.0})
    assert warmstart.paired_differences(one, other, "rmse") == [-2.0, 1.0]


def test_fine_tuning_is_plain_gradient_descent_on_the_support_set() -> None:
    problem = warmstart.sinusoid(TINY)
    pooled = warmstart.pooled_learner(problem).start(Sinusoids())
    support = Sinusoids()[0].support
    tuned = warmstart.tuned_learner(pooled, warmstart.Choice(0.02, 0.3, steps=1))
    adapted = tuned.adapt(support).weights

    module, rho = pooled.network.module, pooled.theta_.plain["likelihood.rho"].detach().clone().requires_grad_()
    scale = torch.nn.functional.softplus(rho)
    loss = -torch.distributions.Normal(module(support.x), scale).log_prob(support.y).mean()
    loss.backward()
    expected = torch.cat([(p - 0.02 * p.grad).flatten() for p in module.parameters() if p.grad is not None])
    assert rho.grad is not None
    torch.testing.assert_close(adapted.mu, expected)
    torch.testing.assert_close(adapted.plain["likelihood.rho"], rho - 0.3 * rho.grad)


def test_the_best_tuning_is_found_among_step_sizes_and_steps() -> None:
    problem = warmstart.sinusoid(TINY)
    pooled = warmstart.pooled_learner(problem).start(Sinusoids())
    best = warmstart.choose(
        lambda tuning: warmstart._validated(warmstart.tuned_learner(pooled, tuning), problem, TINY, (0, 1, 3)),
        (1e-9, 1e-2, 1e9),
        (1e-6, 1e-5),
    )["rmse"]
    assert (best.size, best.steps) == (1e-2, 3)  # a fresh network: more is better, 1e-9 is nothing, 1e9 explodes
    log_lr = warmstart.tuned_learner(pooled, best).theta_.log_lr
    assert len(log_lr.unique()) == 2
