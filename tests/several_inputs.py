"""The same network and the same data with one tensor as input, and with two."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metaprior.tasks.task import Examples, Task

SKY = 3
"""Numbers of the first input; the second, the wind, has two."""

FORMS: dict[str, Callable[[Tensor], Any]] = {
    "tuple": lambda x: (x[:, :SKY], x[:, SKY:]),
    "dict": lambda x: {"sky": x[:, :SKY], "wind": x[:, SKY:]},
}
"""How two inputs are given."""


class OneInput(nn.Module):
    """A trunk and a head that take one tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = nn.Linear(5, 4).double(), nn.Linear(4, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(x)))


class TwoInputs(OneInput):
    """The same function of two tensors."""

    def forward(self, sky: Tensor, wind: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat([sky, wind], 1))


class Joined(nn.Linear):
    def forward(self, sky: Tensor, wind: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat([sky, wind], 1))


class StagedInputs(nn.Module):
    """A trunk of two inputs, and a head behind it."""

    def __init__(self, joined: type[nn.Linear]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = joined(5, 4).double(), nn.Linear(4, 1).double()

    def stages(self) -> Sequence[nn.Module]:
        return [self.first, nn.Tanh(), self.head]

    def forward(self, *x: Tensor, **named: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(*x, **named)))


def module_for(form: str | None) -> nn.Module:
    return TwoInputs() if form else OneInput()


def given(x: Tensor, form: str | None) -> Any:
    return FORMS[form](x) if form else x


def examples(count: int, seed: int, form: str | None = None) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, dtype=torch.float64, generator=generator)
    slope = torch.randn(1, dtype=torch.float64, generator=generator)
    y = slope * x[:, :1] + x[:, 4:].sin() + 0.1 * torch.randn(count, 1, dtype=torch.float64, generator=generator)
    return Examples(given(x, form), y)


def task(seed: int, form: str | None = None, support: int = 4, query: int = 5) -> Task:
    together = examples(support + query, seed, form)
    return Task.split(*together, support, f"task {seed}")
