from functools import partial

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from metaprior.network import BayesianNetwork, evaluation_mode


def conv_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 2, 1))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


class Branching(nn.Module):
    """Python control flow on a value, which torch.vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y if float(y.detach().sum()) > 0 else -y


@pytest.mark.parametrize("module", [nn.Linear(3, 2), conv_net(), Tied(), nn.Bilinear(2, 2, 1)])
def test_means_start_at_the_modules_own_values_and_flattening_round_trips(module: nn.Module) -> None:
    network = BayesianNetwork(module)
    named = network.layout.split(network.initial().mu)
    for name, parameter in module.named_parameters():
        assert torch.equal(named[name], parameter)
    assert torch.equal(network.layout.flatten(named), network.initial().mu)
    assert network.layout.dimension == sum(p.numel() for p in module.parameters())


def test_initial_sigma_follows_each_tensors_own_scale() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        module[0].weight.fill_(0.5)
        module[0].bias.zero_()
        module[1].weight.fill_(-8.0)
        module[1].bias.fill_(2.0)
    network = BayesianNetwork(module)
    sigma = network.layout.split(network.initial(relative_sigma=0.1).sigma)
    assert torch.allclose(sigma["0.weight"], torch.tensor(0.05))
    assert torch.allclose(sigma["1.weight"], torch.tensor(0.8))
    assert torch.allclose(sigma["0.bias"], torch.tensor(0.2)), "a zero tensor takes the median scale of the others"


def test_forward_equals_the_module_with_those_weights_and_leaves_it_alone() -> None:
    module = conv_net()
    before = {name: p.clone() for name, p in module.state_dict().items()}
    network = BayesianNetwork(module)
    x = torch.randn(2, 1, 6, 6)
    q = network.initial()
    assert torch.equal(network(q.mu, q.plain, x), module(x))
    assert not torch.equal(network(q.mu + 1, q.plain, x), module(x))
    assert all(torch.equal(before[name], p) for name, p in module.state_dict().items())


def test_tied_weights_are_one_parameter_and_move_together() -> None:
    module = Tied()
    network = BayesianNetwork(module)
    assert network.layout.dimension == 9
    x, q = torch.randn(4, 3), network.initial()
    weight = (q.mu + 1).view(3, 3)
    torch.testing.assert_close(network(q.mu + 1, q.plain, x), (x @ weight.T).tanh() @ weight.T)


def test_pattern_chooses_random_plain_and_constant_parameters() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    module[0].requires_grad_(False)
    network = BayesianNetwork(module, stochastic=r"2\..*")
    assert network.layout.names == ("2.weight", "2.bias")
    assert set(network.initial().plain) == {"1.weight", "1.bias"}
    assert set(network.constants) == {"0.weight", "0.bias"}


def test_plain_parameters_are_used_and_foreign_ones_ignored() -> None:
    module = nn.Linear(2, 1)
    network = BayesianNetwork(module, stochastic="weight")
    q = network.initial()
    plain = {"bias": torch.full((1,), 7.0), "likelihood.rho": torch.zeros(())}
    assert torch.equal(network(torch.zeros(2), plain, torch.ones(1, 2)), torch.full((1, 1), 7.0))
    assert set(q.plain) == {"bias"}


def test_pattern_that_matches_nothing_names_the_parameters() -> None:
    with pytest.raises(ValueError, match=r"matches none.*0\.weight, 0\.bias"):
        BayesianNetwork(nn.Sequential(nn.Linear(1, 1)), stochastic="head")
    with pytest.raises(ValueError, match="not a regular expression"):
        BayesianNetwork(nn.Linear(1, 1), stochastic="(")


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(3),
        nn.BatchNorm2d(3, track_running_stats=False).eval(),
        nn.InstanceNorm2d(3, track_running_stats=True),
    ],
)
def test_batch_statistics_are_refused_with_the_reason_and_the_remedy(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Conv2d(1, 3, 1), layer)
    with pytest.raises(ValueError, match=r"layer '1'.*GroupNorm"):
        BayesianNetwork(module)


def test_frozen_batch_norm_and_group_norm_are_welcome() -> None:
    frozen = nn.BatchNorm2d(3).eval()
    BayesianNetwork(nn.Sequential(nn.Conv2d(1, 3, 1), frozen, nn.GroupNorm(1, 3), nn.InstanceNorm2d(3)))


def test_module_that_ignores_its_parameters_is_refused() -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 1), nn.Linear(2, 1)
            self.behind_torchs_back = [self.unused.weight]

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x) + x @ self.behind_torchs_back[0].T

    with pytest.raises(ValueError, match=r"does not depend on 2 of its 4.*unused\.weight, unused\.bias"):
        BayesianNetwork(Deaf()).check_forward(torch.ones(3, 2))


def test_unusable_outputs_are_refused() -> None:
    class Pooled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).sum(0)

    class Pair(nn.Linear):
        def forward(self, x: Tensor) -> list[Tensor]:  # type: ignore[override]
            return [super().forward(x), x]

    with pytest.raises(ValueError, match="first axis has to be the observations"):
        BayesianNetwork(Pooled(2, 3)).check_forward(torch.ones(5, 2))
    with pytest.raises(TypeError, match="or a tuple or dictionary of tensors, got list"):
        BayesianNetwork(Pair(2, 3)).check_forward(torch.ones(5, 2))


@pytest.mark.parametrize(("module", "vectorizes"), [(nn.Linear(2, 1), True), (Branching(), False)])
def test_several_samples_equal_one_after_the_other(module: nn.Module, vectorizes: bool) -> None:
    network = BayesianNetwork(module)
    x = torch.randn(4, 2)
    phis = network.initial().sample(torch.randn(3, 3))
    together = network.map_samples(lambda phi: network(phi, {}, x), phis)
    assert network._vectorizes is vectorizes
    torch.testing.assert_close(together, torch.stack([network(phi, {}, x) for phi in phis]))


def test_evaluation_mode_restores_every_parts_own_mode() -> None:
    module = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    with evaluation_mode(module):
        assert not any(part.training for part in module.modules())
    assert [part.training for part in module.modules()] == [True, True, False]


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.GRU])
def test_recurrent_networks_work_and_batches_on_the_wrong_axis_are_refused(recurrent: type[nn.Module]) -> None:
    class Last(nn.Module):
        def __init__(self, batch_first: bool) -> None:
            super().__init__()
            self.recurrent = recurrent(2, 4, batch_first=batch_first)

        def forward(self, x: Tensor) -> Tensor:
            return self.recurrent(x)[0]

    x = torch.randn(5, 3, 2)
    network = BayesianNetwork(Last(batch_first=True))
    assert network.check_forward(x) == (5, 3, 4)
    phis = network.initial().sample(torch.randn(2, network.layout.dimension))
    assert network.map_samples(lambda phi: network(phi, {}, x), phis).shape == (2, 5, 3, 4)
    with pytest.raises(ValueError, match="changes with the other observations"):
        BayesianNetwork(Last(batch_first=False)).check_forward(x)


def test_a_squeeze_that_eats_the_observations_is_refused() -> None:
    class Squeezing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).squeeze()

    with pytest.raises(ValueError, match=r"first axis has to be the observations|name the axis"):
        BayesianNetwork(Squeezing(2, 1)).check_forward(torch.ones(5, 2))


def test_integers_that_the_network_cannot_take_say_so_and_embeddings_can() -> None:
    with pytest.raises(TypeError, match=r"x holds integers \(torch.int64\)"):
        BayesianNetwork(nn.Linear(2, 1)).check_forward(torch.ones(5, 2, dtype=torch.long))
    embedding = BayesianNetwork(nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(6, 1)))
    assert embedding.check_forward(torch.ones(5, 2, dtype=torch.long)) == (5, 1)


def test_lazy_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="without a shape yet: weight, bias"):
        BayesianNetwork(nn.LazyLinear(2))


def test_an_in_place_first_layer_does_not_change_the_data() -> None:
    network = BayesianNetwork(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 1)))
    x = -torch.ones(5, 2)
    network.check_forward(x)
    network(network.initial().mu, {}, x)
    assert torch.equal(x, -torch.ones(5, 2))


def test_constants_are_copies() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    module[0].requires_grad_(False)
    network = BayesianNetwork(module)
    x, q = torch.ones(1, 2), network.initial()
    before = network(q.mu, {}, x)
    nn.init.zeros_(module[0].weight)
    assert torch.equal(network(q.mu, {}, x), before)


def test_large_images_are_probed_a_few_at_a_time() -> None:
    seen: list[int] = []

    class Watching(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    BayesianNetwork(Watching(1, 64, 3, padding=1)).check_forward(torch.zeros(64, 1, 256, 256))
    assert max(seen) <= 4


def test_numbers_per_observation_grow_with_the_image_and_not_with_the_batch() -> None:
    network = BayesianNetwork(conv_net())
    count = partial(network.numbers_per_observation, network.initial())
    small, large = count(torch.zeros(3, 1, 8, 8)), count(torch.zeros(3, 1, 16, 16))
    assert 3.5 < large / small < 4.5
    assert count(torch.zeros(1, 1, 8, 8)) == small


def test_numbers_are_counted_in_plain_and_frozen_parts_too_and_weights_are_not() -> None:
    def count(stochastic: str, freeze: bool) -> int:
        module = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 16 * 16, 2))
        module[0].requires_grad_(not freeze)
        network = BayesianNetwork(module, stochastic)
        return network.numbers_per_observation(network.initial(), torch.zeros(1, 1, 16, 16))

    everything = count(".*", freeze=False)
    assert everything < 8 * 16 * 16 * 4
    assert everything > 8 * 16 * 16
    assert count(r"2\..*", freeze=False) == count(r"2\..*", freeze=True) == count(r"0\..*", freeze=False) == everything


def test_a_forward_that_takes_derivatives_is_welcome() -> None:
    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.potential = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            return torch.func.grad(lambda z: self.potential(z).sum())(x)

    assert BayesianNetwork(Force()).check_forward(torch.randn(5, 2)) == (5, 2)


def test_hard_routing_on_sorted_data_is_welcome() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = nn.Linear(1, 1), nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            out, low = torch.zeros_like(x), x[:, 0] < 0
            out[low], out[~low] = self.low(x[low]), self.high(x[~low])
            return out

    assert BayesianNetwork(Experts()).check_forward(torch.linspace(-1, 1, 1000).unsqueeze(-1)) == (64, 1)


def test_a_module_with_its_own_randomness_is_not_taken_for_one_that_mixes_observations() -> None:
    class AlwaysDropping(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(x), 0.5, training=True)

    torch.manual_seed(0)
    assert BayesianNetwork(AlwaysDropping(2, 3)).check_forward(torch.randn(10, 2)) == (10, 3)


def test_checks_run_in_eval_mode_and_without_the_callers_no_grad() -> None:
    network = BayesianNetwork(nn.Sequential(nn.Linear(2, 50), nn.Dropout(0.9), nn.Linear(50, 1)))
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    with torch.no_grad():
        network.check_forward(torch.randn(10, 2, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.random.get_rng_state(), before), "no dropout mask was drawn"


def test_half_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"need 32 bits or more.*weight, bias; use \.float\(\)"):
        BayesianNetwork(nn.Linear(2, 2).half())


def test_a_layer_that_fails_only_on_the_way_back_is_run_sample_by_sample() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            out = torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)
            assert isinstance(out, Tensor)
            return out

    network = BayesianNetwork(Checkpointed())
    network.check_forward(torch.randn(5, 2))
    phis = torch.randn(3, 3, requires_grad=True)
    network.map_samples(lambda phi: network(phi, {}, torch.ones(1, 2)).sum(), phis).sum().backward()
    torch.testing.assert_close(phis.grad, torch.ones(3, 3))


@pytest.mark.slow  # torch.compile takes seconds to import
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_compiled_modules_are_refused() -> None:
    first, last = nn.Linear(2, 3), nn.Linear(3, 1)
    given = torch.compile(nn.Sequential(first, last)), nn.Sequential(first, torch.compile(last)), nn.Sequential(first)
    given[2].compile()
    messages = (
        r"module must not be compiled by torch.compile, got OptimizedModule: .* Try module._orig_mod",
        "got OptimizedModule as '1': there are no second derivatives of it",
        r"got Sequential: .* Try the module without .compile\(\)",
    )
    for module, message in zip(given, messages, strict=True):
        with pytest.raises(TypeError, match=message):
            BayesianNetwork(module)  # type: ignore[arg-type]
