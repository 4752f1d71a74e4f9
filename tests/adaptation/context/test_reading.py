"""A conditioned module: equal to the plain one at the start, and to its equations with any context."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from metaprior.adaptation.context.reading import ConditionedModule
from metaprior.models.small import MLP, Conv4
from metaprior.models.unet import UNet

SIZE = 3


class Own(nn.Module):
    """A network with a parameter and a buffer of its own, and a LayerNorm over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(2.0))
        self.offset: Tensor
        self.register_buffer("offset", torch.tensor(0.5))
        self.first, self.norm, self.last = nn.Linear(2, 6), nn.LayerNorm(6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.norm(self.first(x)).tanh()).squeeze(-1)
        return self.gain * outputs + self.offset


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP": (lambda: MLP(2, [5, 4], 1), (2,)),
    "Sequential": (lambda: nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)), (2,)),
    "linear": (lambda: nn.Linear(2, 1), (2,)),
    "own": (Own, (4, 2)),
    "Conv4": (lambda: Conv4(1, 16, 3, 16), (1, 16, 16)),
    "UNet": (lambda: UNet(2, 1, 4, 2), (2, 8, 8)),
}


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, shape = NETWORKS[request.param]
    return make().double(), torch.randn(7, *shape, dtype=torch.float64)


def conditioned(module: nn.Module, reading: str = "auto") -> tuple[ConditionedModule, dict[str, Tensor]]:
    """Return a conditioned module with a matrix that is not zero."""
    made = ConditionedModule(module, SIZE, reading)  # type: ignore[arg-type]
    weight = made.get_parameter("context.weight")
    return made, {"context.weight": 0.3 * torch.randn(weight.shape, dtype=weight.dtype)}


def test_names_are_the_modules_own_and_the_start_is_the_plain_network(network: tuple[nn.Module, Tensor]) -> None:
    module, x = network
    names, state = [name for name, _ in module.named_parameters()], copy.deepcopy(module.state_dict())
    made = ConditionedModule(module, SIZE)
    assert [name for name, _ in made.named_parameters()] == [*names, "context.value", "context.weight"]
    value = torch.randn(7, SIZE, dtype=torch.float64)
    torch.testing.assert_close(functional_call(made, {"context.value": value}, (x,)), module(x), rtol=0, atol=0)
    moved = {name: p.detach() + 0.1 for name, p in module.named_parameters()}
    torch.testing.assert_close(functional_call(made, moved, (x,)), functional_call(module, moved, (x,)))
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("reading", ["inputs", "layers", "auto"])
def test_one_context_rows_of_contexts_and_vmap_agree(network: tuple[nn.Module, Tensor], reading: str) -> None:
    module, x = network
    made, weight = conditioned(module, reading)
    c = torch.randn(SIZE, dtype=torch.float64)

    def run(value: Tensor, x: Tensor) -> Tensor:
        return functional_call(made, {**weight, "context.value": value}, (x,))  # type: ignore[no-any-return]

    alone = run(c, x)
    assert not torch.allclose(alone, module(x))
    torch.testing.assert_close(run(c.expand(7, SIZE), x), alone)
    two = torch.stack([c, -2 * c])
    together = torch.vmap(run)(two, torch.stack([x, x]))
    torch.testing.assert_close(together, torch.stack([run(two[0], x), run(two[1], x)]))
    torch.testing.assert_close(run(two.repeat_interleave(7, 0), torch.cat([x, x])), together.flatten(0, 1))


@pytest.mark.parametrize("layer", [nn.Linear, nn.Conv2d])
def test_inputs_are_further_inputs_of_the_first_layer(layer: type) -> None:
    torch.manual_seed(0)
    space = (4, 4) if layer is nn.Conv2d else ()
    kernel = (1,) if layer is nn.Conv2d else ()
    plain, wide = layer(2, 5, *kernel).double(), layer(2 + SIZE, 5, *kernel).double()
    made, weight = conditioned(nn.Sequential(plain), "inputs")
    extra = weight["context.weight"].reshape(5, SIZE, *[1] * len(space))
    with torch.no_grad():
        wide.weight.copy_(torch.cat([plain.weight, extra], 1))
        wide.bias.copy_(plain.bias)
    x, c = torch.randn(7, 2, *space, dtype=torch.float64), torch.randn(7, SIZE, dtype=torch.float64)
    planes = c.reshape(7, SIZE, *[1] * len(space)).expand(7, SIZE, *space)
    found = functional_call(made, {**weight, "context.value": c}, (x,))
    torch.testing.assert_close(found, wide(torch.cat([x, planes], 1)))


def test_layers_and_norms_are_scaled_and_shifted() -> None:
    torch.manual_seed(0)
    module, x = Own().double(), torch.randn(7, 4, 2, dtype=torch.float64)
    c = torch.randn(SIZE, dtype=torch.float64)
    for reading in ("layers", "norms"):
        made, weight = conditioned(module, reading)
        scale, shift = (weight["context.weight"] @ c).chunk(2)
        hidden = module.first(x)
        hidden = hidden * (1 + scale) + shift if reading == "layers" else hidden
        hidden = module.norm(hidden)
        hidden = hidden * (1 + scale) + shift if reading == "norms" else hidden
        expected = module.gain * module.last(hidden.tanh()).squeeze(-1) + module.offset
        torch.testing.assert_close(functional_call(made, {**weight, "context.value": c}, (x,)), expected)


def test_a_copy_of_a_conditioned_module_is_independent_and_modes_reach_it() -> None:
    class Mode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.layer(x)
            return outputs * (2 if self.training else 1)

    made, x = ConditionedModule(Mode(), SIZE), torch.ones(1, 1)
    other = copy.deepcopy(made).eval()
    torch.testing.assert_close(made(x), 2 * other(x))
    with torch.no_grad():
        other.get_parameter("layer.bias").add_(1.0)
    torch.testing.assert_close(made(x) / 2 + 1, other(x))


class Folding(nn.Module):
    """Folds an axis into the observations."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.layer(x.flatten(0, 1)).view(x.shape))
        return outputs


class Crossed(nn.Module):
    """Registers its layers in another order than forward calls them in; one is not called."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.last, self.entry = nn.LayerNorm(2), nn.Linear(2, 1), nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.entry(x))
        return outputs


def test_a_context_that_the_network_would_not_read_as_asked_raises() -> None:
    with pytest.raises(ValueError, match=r"'entry' called before the one registered first\. .*reading='layers'"):
        ConditionedModule(Crossed(), SIZE, "inputs")(torch.ones(3, 1))
    with pytest.raises(ValueError, match="got a Crossed that calls none of them"):
        ConditionedModule(Crossed(), SIZE, "norms")(torch.ones(3, 1))
    ConditionedModule(Crossed(), SIZE, "layers")(torch.ones(3, 1))


def test_what_cannot_read_a_context_raises() -> None:
    with pytest.raises(ValueError, match="'context' itself"):
        ConditionedModule(nn.ModuleDict({"context": nn.Linear(1, 1)}), SIZE)
    with pytest.raises(ValueError, match=r"normalisation layer .* got a MLP without"):
        ConditionedModule(MLP(1, [2], 1), SIZE, "norms")
    with pytest.raises(ValueError, match="Linear or convolutional layer"):
        ConditionedModule(nn.LSTM(1, 1), SIZE)
    with pytest.raises(ValueError, match="got 6 rows of a Linear for 3 of them"):
        functional_call(
            ConditionedModule(Folding(), SIZE), {"context.value": torch.zeros(3, SIZE)}, (torch.ones(3, 2, 1),)
        )
