"""The closed form as a task model: losses by hand, gradients, failures, forecasts, and every likelihood."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import metaprior as mp
from metaprior.adaptation.closed_form import labels, parameters
from metaprior.adaptation.closed_form.conjugate import condition
from metaprior.adaptation.closed_form.model import FIRST_TEMPERATURE, TASK_SHARE, ClosedFormModel, bind
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.task_model import MEANS, SCALES, Binding, Start
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, GaussianForecast
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.problem import NonFinite
from metaprior.network import NOTHING_RANDOM, BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import Parameters, WeightDistribution

NOISE = Noise(0)


def normals(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def model_of(
    module: nn.Module, likelihood: Likelihood, settings: ClosedForm | None = None, objective: str | None = None
) -> ClosedFormModel:
    network = BayesianNetwork(module.double(), NOTHING_RANDOM)
    return bind(settings or ClosedForm(), Binding(network, likelihood, objective))


def mlp(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return mp.MLP(2, [3], outputs, activation="tanh")


def convolution(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, outputs, 1))


def numbers(seed: int, size: int, outputs: int = 2) -> Examples:
    return Examples(normals(seed, size, 2), normals(seed + 1, size, outputs))


def classes(seed: int, size: int, ways: int = 3) -> Examples:
    return Examples(normals(seed, size, 2), torch.arange(size) % ways)


def bits(seed: int, size: int) -> Examples:
    return Examples(normals(seed, size, 2), (normals(seed + 1, size, 2) > 0).double())


def images(seed: int, size: int) -> Examples:
    return Examples(normals(seed, size, 1, 4, 5), normals(seed + 1, size, 2, 4, 5))


def pixel_classes(seed: int, size: int) -> Examples:
    return Examples(normals(seed, size, 1, 4, 5), torch.arange(size * 20).reshape(size, 4, 5) % 3)


CASES = {
    "numbers": (mlp(2), mp.Gaussian(), ClosedForm(components=1), numbers),
    "mixture": (mlp(2), mp.Gaussian(per_channel=True), ClosedForm(rank=1, components=2, component_noise=True), numbers),
    "fixed noise": (mlp(2), mp.Gaussian(noise=(0.1, 0.2)), ClosedForm(rank=2, components=1, temperature=0.5), numbers),
    "scales": (mlp(4), mp.HeteroscedasticGaussian(), ClosedForm(rank=0, components=1), numbers),
    "crps": (mlp(4), mp.CRPSGaussian(), ClosedForm(components=2), numbers),
    "classes": (mlp(4), mp.Categorical(), ClosedForm(), classes),
    "own classes": (mlp(3), mp.Categorical(), ClosedForm(components=2, labels="fixed"), classes),
    "bits": (mlp(2), mp.Bernoulli(), ClosedForm(), bits),
    "images": (convolution(2), mp.Gaussian(), ClosedForm(), images),
    "image scales": (convolution(4), mp.HeteroscedasticGaussian(), ClosedForm(components=2), images),
    "pixel classes": (convolution(3), mp.Categorical(), ClosedForm(), pixel_classes),
}


def case(name: str) -> tuple[ClosedFormModel, list[Task], WeightDistribution]:
    """Return a model, tasks with 0, 1 and 6 support examples, and a theta that is not the first one."""
    module, likelihood, settings, examples = CASES[name]
    model = model_of(module, likelihood, settings)
    tasks = [Task(examples(10 * n, n), examples(10 * n + 5, 6), f"task {n}") for n in (0, 1, 6)]
    theta = model.initial(tasks[-1].query.y.double())
    moved = {n: v + 0.1 * normals(i, *v.shape) for i, (n, v) in enumerate(theta.plain.items())}
    return model, [model.check(task) for task in tasks[1:]] + tasks[:1], theta.replace(plain=moved)


def loss(model: ClosedFormModel, theta: WeightDistribution, tasks: Sequence[Task]) -> Tensor:
    return model.losses(theta, tasks)


@pytest.mark.parametrize("name", CASES)
def test_meta_gradients_equal_finite_differences(name: str) -> None:
    model, tasks, theta = case(name)
    names = list(theta.plain)

    def total(*values: Tensor) -> Tensor:
        return loss(model, theta.replace(plain=dict(zip(names, values, strict=True))), tasks)

    inputs = tuple(value.clone().requires_grad_() for value in theta.plain.values())
    assert torch.autograd.gradcheck(total, inputs, atol=1e-6, rtol=1e-5)
    sums = model.sums(theta, tasks, NOISE)
    grads = torch.autograd.grad(total(*inputs).sum(), inputs, allow_unused=True)
    assert isinstance(sums.grads, Parameters)
    for found, expected in zip(sums.grads.plain.values(), grads, strict=True):
        torch.testing.assert_close(found, torch.zeros_like(found) if expected is None else expected)


@pytest.mark.parametrize("name", CASES)
def test_the_loss_is_the_score_of_the_forecast(name: str) -> None:
    model, tasks, theta = case(name)
    together = loss(model, theta, tasks)
    for task, found in zip(tasks, together, strict=True):
        posterior = model.adapt(theta, task.support, NOISE)
        assert not isinstance(posterior, NonFinite)
        forecast = posterior.predict(task.query.x)
        in_parts = posterior.predict(task.query.x, batch_size=2)
        if name == "crps":
            assert isinstance(forecast, GaussianForecast)
            score = 10.0 * mp.scores.crps(forecast, task.query.y).flatten(1).sum(1)
        else:
            score = -forecast.log_prob(task.query.y)
        torch.testing.assert_close(score.mean(), found)
        torch.testing.assert_close(in_parts.log_prob(task.query.y), forecast.log_prob(task.query.y))
        if isinstance(forecast, GaussianForecast):
            squares = sum(part.square() for part in forecast.parts.values())
            torch.testing.assert_close(squares, forecast.std.square())
            assert not forecast.parts["prior"].any()
    empty = model.prior(theta).predict(tasks[-1].query.x)
    torch.testing.assert_close(empty.mean, forecast.mean)  # the last task has no support


@pytest.mark.parametrize("name", ["numbers", "scales", "bits", "classes", "image scales"])
def test_missing_targets_are_those_dropped_by_hand(name: str) -> None:
    model, tasks, theta = case(name)
    task = tasks[1]
    missing = torch.zeros_like(task.support.y, dtype=torch.bool)
    missing[2], missing[4] = True, True
    value = -100 if name == "classes" else torch.nan
    holes = Task(task.support._replace(y=task.support.y.masked_fill(missing, value)), task.query)
    kept = torch.tensor([0, 1, 3, 5])
    dropped = Task(task.support.rows(kept), task.query)
    torch.testing.assert_close(loss(model, theta, [holes]), loss(model, theta, [dropped]))
    holes, dropped = Task(task.support, holes.support), Task(task.support, dropped.support)
    torch.testing.assert_close(loss(model, theta, [holes]), loss(model, theta, [dropped]))


def test_evidence_is_that_of_support_and_query_and_of_the_chain_rule() -> None:
    module, task = mlp(2), Task(numbers(1, 3), numbers(3, 4))
    model = model_of(module, mp.Gaussian(), ClosedForm(components=2), "evidence")
    theta = model.initial(task.query.y)
    x, y = torch.cat([task.support.x, task.query.x]), torch.cat([task.support.y, task.query.y])
    features = torch.cat(
        [module[:-1](x) if isinstance(module, nn.Sequential) else model.head.split(theta.plain, x).features[:, 0]], 1
    )
    scale = F.softplus(theta.plain["likelihood.rho"])
    by_hand = condition(parameters.prior_of(theta.plain), features, y, scale).log_marginal / 7
    torch.testing.assert_close(-loss(model, theta, [task])[0], by_hand)
    one_by_one = []
    for n in range(7):
        posterior = model.adapt(theta, Examples(x[:n], y[:n]), NOISE)
        assert not isinstance(posterior, NonFinite)
        one_by_one.append(posterior.predict(x[n : n + 1]).log_prob(y[n : n + 1]))
    torch.testing.assert_close(torch.cat(one_by_one).mean(), by_hand)


def test_a_linear_model_ends_where_descent_on_its_free_energy_ends() -> None:
    torch.manual_seed(0)
    model = model_of(nn.Linear(2, 1), mp.Gaussian(noise=0.3), ClosedForm(components=1))
    support = numbers(1, 6, 1)
    theta = model.initial(support.y)
    posterior = model.adapt(theta, support, NOISE)
    assert not isinstance(posterior, NonFinite)
    prior = parameters.prior_of(theta.plain)
    precision = torch.linalg.inv(prior.factor[0, 0] @ prior.factor[0, 0].mT)
    features = torch.cat([support.x, torch.ones(6, 1)], 1)
    w = prior.mean[0, 0].clone()
    for _ in range(20_000):
        gradient = features.T @ (features @ w - support.y[:, 0]) / 0.09 + precision @ (w - prior.mean[0, 0])
        w = w - 2e-3 * gradient
    torch.testing.assert_close(posterior.predict(support.x).mean[:, 0], features @ w, rtol=1e-6, atol=1e-6)


def test_tasks_without_finite_numbers_do_not_hurt_the_others() -> None:
    model, tasks, theta = case("numbers")
    huge = Task(Examples(tasks[1].support.x, tasks[1].support.y * 1e200), tasks[1].query, "huge")
    broken = Task(Examples(tasks[1].support.x * torch.inf, tasks[1].support.y), tasks[1].query, "broken")
    alone, found = model.sums(theta, tasks, NOISE), model.sums(theta, [tasks[0], huge, broken, *tasks[1:]], NOISE)
    assert {failure.task for failure in found.failures} == {"huge", "broken"}
    assert isinstance(found.grads, Parameters)
    assert isinstance(alone.grads, Parameters)
    for one, other in zip(found.grads.plain.values(), alone.grads.plain.values(), strict=True):
        torch.testing.assert_close(one, other)
    assert isinstance(model.adapt(theta, huge.support, NOISE), NonFinite)


def test_classes_may_be_renamed_and_fewer_than_the_outputs() -> None:
    """One prior for all classes: a permutation of the labels permutes the forecast; classes not shown have no part."""
    model = model_of(mlp(20), mp.Categorical())
    theta = model.initial(torch.zeros(1, dtype=torch.float64))
    support, query = classes(1, 10, 5), normals(7, 4, 2)
    order = torch.tensor([3, 1, 4, 0, 2])
    one, other = (model.adapt(theta, support._replace(y=y), NOISE) for y in (support.y, order[support.y]))
    assert not isinstance(one, NonFinite)
    assert not isinstance(other, NonFinite)
    found, renamed = one.predict(query), other.predict(query)
    assert isinstance(found, CategoricalForecast)
    torch.testing.assert_close(found.mean[:, :5], renamed.mean[:, order])
    assert float(found.mean[:, 5:].sum(1).max()) < 0.02
    nothing = model.prior(theta).predict(query)
    torch.testing.assert_close(nothing.mean, torch.full_like(nothing.mean, 1 / 20))


def test_labels_of_fixed_meaning_have_priors_of_their_own() -> None:
    own = model_of(mlp(3), mp.Categorical(), ClosedForm(labels="fixed"))
    theta = own.initial(torch.zeros(1, dtype=torch.float64))
    assert theta.plain[parameters.MEAN].shape[1] == 3
    x = normals(1, 4, 2)
    probabilities = own.prior(theta).predict(x).mean
    assert (probabilities.argmax(1) == mlp(3).double()(x).argmax(1)).all()
    bernoulli = model_of(mlp(2), mp.Bernoulli())
    assert isinstance(bernoulli.prior(bernoulli.initial(torch.ones(1).double())).predict(x), BernoulliForecast)


def test_theta_holds_trunk_prior_and_noise_in_their_groups() -> None:
    model = model_of(mlp(2), mp.Gaussian(), ClosedForm(components=2, temperature="learned"))
    theta = model.initial(torch.ones(3, 2, dtype=torch.float64))
    assert theta.mu.numel() == theta.rho.numel() == 0
    groups = {kind: {name.removeprefix("plain.") for name in names} for kind, names in model.groups(theta).items()}
    assert "layers.0.weight" in groups[MEANS]
    assert parameters.MEAN in groups[MEANS]
    assert groups[SCALES] == {
        parameters.FACTOR, parameters.LOG_SCALE, parameters.LOGITS, parameters.LOG_TEMPERATURE, "likelihood.rho",
    }  # fmt: skip
    assert not any(name.startswith("layers.2") for name in theta.plain)  # the last layer is the prior's
    model.check_theta(theta)
    again = model.initial(torch.ones(3, 2, dtype=torch.float64))
    assert all(torch.equal(a, b) for a, b in zip(theta.tensors(), again.tensors(), strict=True))
    first, second = theta.plain[parameters.MEAN]
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_the_prior_begins_with_the_spread_of_the_targets(size: float) -> None:
    model = model_of(mlp(1), mp.Gaussian())
    tasks = [Task(numbers(i, 5, 1), Examples(normals(i, 50, 2), size * normals(i + 1, 50, 1))) for i in range(8)]
    start = Start(lambda count: (tasks[:count], NOISE), False, False, 0.1, False, False)
    theta = model.begin(model.initial(tasks[0].query.y), start)
    deviation = float(model.prior(theta).predict(tasks[0].query.x).parts["task"].mean())  # type: ignore[attr-defined]
    assert 0.3 * size < deviation < 3 * max(size, 0.3)


def test_what_cannot_work_is_refused() -> None:
    for likelihood, settings in (
        (mp.Categorical(), ClosedForm()),
        (mp.CRPSGaussian(), ClosedForm()),
        (mp.Gaussian(), ClosedForm(temperature="learned")),
    ):
        with pytest.raises(ValueError, match="objective='evidence' must have a"):
            model_of(mlp(2), likelihood, settings, "evidence")
    with pytest.raises(ValueError, match="objective must be one of predictive, evidence"):
        model_of(mlp(2), mp.Gaussian(), objective="abml")
    model, tasks, theta = case("numbers")
    with pytest.raises(ValueError, match="steps must be None"):
        model.adapt(theta, tasks[0].support, NOISE, steps=3)
    series = model_of(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 4)), mp.HeteroscedasticGaussian())
    examples = Examples(normals(1, 3, 6, 2), normals(2, 3, 3, 4))
    with pytest.raises(ValueError, match="must find channels on axis 1"):
        series.check(Task(examples, examples))
    after = model_of(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), mp.Gaussian())
    with pytest.raises(ValueError, match="something else comes after it"):
        after.check(tasks[1])
    for bad in ({"rank": -1}, {"components": 0}, {"temperature": 0.0}, {"temperature": "warm"}, {"labels": "some"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            ClosedForm(**bad)


def test_defaults_follow_the_kind_of_network_and_targets() -> None:
    found = {name: case(name)[2].plain for name in ("classes", "images")}
    found["vectors"] = model_of(mlp(1), mp.Gaussian()).initial(torch.ones(2, 1).double()).plain
    assert {name: len(plain[parameters.LOGITS]) for name, plain in found.items()} == {
        "classes": 1,
        "images": 1,
        "vectors": 4,
    }
    assert [name for name, plain in found.items() if parameters.LOG_TEMPERATURE in plain] == ["images"]
    assert [ClosedForm().rank_of(d) for d in (41, 64, 65, 577)] == [41, 64, 16, 16]
    assert ClosedForm(rank=100).rank_of(41) == 41


def test_scales_of_labels_follow_ways_and_shots() -> None:
    plain = labels.initial(torch.zeros(()).double())
    plain[labels.SCALES][1, 1:] = torch.tensor([0.5, -0.25])
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    codes, scales = labels.class_codes(y, y >= 0, 5, plain, hide_unseen=True)
    expected = labels.FIRST_FACTOR * 3**0.5 * 3**-0.25
    torch.testing.assert_close(scales.factor, torch.tensor(expected).double())
    torch.testing.assert_close(codes[0], torch.tensor([2, -1, -1, -1, -1]).double() / 3)
    assert scales.unseen is not None
    assert scales.unseen.tolist() == [False, False, False, True, True]


def test_the_first_prior_of_a_trained_network_expects_tasks_to_differ_by_a_share_of_its_errors() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 1), torch.randn(40, 2)
    module, scales = mp.MLP(1, [4], 2), []
    for pretrained in (False, True):
        learner = mp.MetaLearner(module, mp.Gaussian(), adaptation=ClosedForm(), standardize=False)
        trainer = learner.trainer(
            [mp.Task.split(x, y, 20, "noise")] * 2,
            mp.MetaTraining(pretrained=pretrained, meta_batch=2, lr=1e-9, scale_lr=1e-9),
        )
        trainer.step()
        scales.append(trainer.theta.plain[parameters.LOG_SCALE].exp().square())
    torch.testing.assert_close(scales[1], TASK_SHARE * scales[0])


def test_a_learned_temperature_starts_below_one_for_images_alone() -> None:
    conv = torch.nn.Conv2d(1, 2, 1)
    images = model_of(conv, mp.HeteroscedasticGaussian(), ClosedForm())
    vectors = model_of(mlp(2), mp.Gaussian(), ClosedForm(temperature="learned"))
    first = [model.initial(torch.ones(2)).plain[parameters.LOG_TEMPERATURE].exp() for model in (images, vectors)]
    torch.testing.assert_close(torch.stack(first).double(), torch.tensor([FIRST_TEMPERATURE, 1.0]).double())
