"""Exact engines agree on problems that nobody chose."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from metaprior.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian
from metaprior.metagrad import AmortizedELBO, Descent, QueryLoss, unrolled
from tests.metagrad.problems import ENGINES, Case, assert_same, make_case, solved

ACTIVATIONS = (nn.Tanh, nn.SiLU, nn.Softplus)  # smooth: a layer of dead units would compare zeros


@st.composite
def cases(draw: st.DrawFn) -> Case:
    inputs, seed = draw(st.integers(1, 3)), draw(st.integers(0, 2**20))
    widths = draw(st.lists(st.integers(1, 4), max_size=2))
    outputs = 2 * draw(st.integers(1, 2))
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in zip([inputs, *widths], [*widths, outputs], strict=True):
        layers += [nn.Linear(before, after, bias=draw(st.booleans())), draw(st.sampled_from(ACTIVATIONS))()]
    module = nn.Sequential(*layers[:-1]).double()
    names = [name for name, _ in module.named_parameters()]
    random = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    likelihoods = (Gaussian(noise=0.6), Gaussian(), Gaussian(per_channel=True), HeteroscedasticGaussian())
    likelihood = draw(st.sampled_from([*likelihoods, Categorical(), Bernoulli()]))
    plain = [*(name for name in names if name not in random), *likelihood.parameter_names]
    adapted = draw(st.lists(st.sampled_from(plain), unique=True)) if plain else []
    inner = Descent(
        steps=draw(st.integers(0, 6)),
        lr=draw(st.sampled_from([1e-3, 3e-3])),
        learn_lr=draw(st.sampled_from(["no", "one", "per_tensor"])),
        momentum=draw(st.sampled_from([0.0, 0.5])),
        kl_weight=draw(st.sampled_from([0.0, 0.2])),
        samples=draw(st.integers(1, 3)),
        adapt="|".join(adapted).replace(".", r"\.") or None,
    )
    samples = draw(st.integers(1, 3))
    return make_case(
        module,
        likelihood,
        inner,
        draw(st.sampled_from([QueryLoss(samples), AmortizedELBO(3, samples), AmortizedELBO(2, samples, None)])),
        stochastic="|".join(random).replace(".", r"\."),
        micro_batch=draw(st.sampled_from([None, 1, 2, 3])),
        support=draw(st.integers(1, 5)),
        query=draw(st.integers(1, 5)),
        inputs=(inputs,),
        seed=seed,
    )


@settings(max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_exact_engines_agree_with_unrolling(case: Case) -> None:
    expected = solved(unrolled, case)
    for engine in ENGINES.values():
        assert_same(solved(engine, case), expected, case.problem)
