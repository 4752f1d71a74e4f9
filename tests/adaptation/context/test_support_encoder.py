"""Networks that encode support sets themselves: a context as the second argument."""

import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.tasks.task import Examples, Task, VariedSupport


class MeanAndCount(mp.SupportEncoder):
    """The mean of the targets, and how many there are."""

    size = 2

    def forward(self, x: Tensor, y: Tensor, sizes: Tensor) -> Tensor:
        task = torch.arange(len(sizes)).repeat_interleave(sizes)
        y = y.reshape(-1)
        there = ~y.isnan()
        total = y.new_zeros(len(sizes)).index_add(0, task[there], y[there])
        count = y.new_zeros(len(sizes)).index_add(0, task[there], torch.ones_like(y[there]))
        return torch.stack([total / count.clamp_min(1), count.log1p()], 1)


class Offset(nn.Module):
    """A line beside the mean of the support set."""

    def __init__(self) -> None:
        super().__init__()
        self.slope, self.trust = nn.Linear(1, 3), nn.Parameter(torch.zeros(1))

    def support_encoder(self) -> mp.SupportEncoder:
        return MeanAndCount()

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        mean, count = context.unbind(-1)
        shift = torch.where(count > 0, torch.sigmoid(self.trust) * mean, torch.zeros_like(mean))
        outputs = self.slope(x)
        return outputs + torch.stack([torch.zeros_like(shift), shift, torch.zeros_like(shift)], -1)


def tasks(count: int = 40) -> list[Task]:
    g = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        x, level = torch.rand(12, 1, generator=g), 3 * torch.randn(1, generator=g)
        y = level + x + 0.1 * torch.randn(12, 1, generator=g)
        made.append(Task(Examples(x[:4], y[:4]), Examples(x[4:], y[4:]), f"{number}"))
    return made


def learner() -> mp.MetaLearner:
    torch.manual_seed(0)
    return mp.MetaLearner(Offset(), mp.GaussianMixture(1, 0.05), adaptation=mp.Context(), standardize=False)


def test_a_network_with_an_encoder_of_its_own_learns_adapts_and_is_loaded_again(tmp_path: object) -> None:
    fitted = learner().fit(VariedSupport(tasks(), (0, 1, 4)), epochs=20, tasks_per_epoch=40, lr=0.05, progress=False)
    assert not any(name.startswith("context.") for name in fitted.theta_.plain)
    rows = fitted.evaluate(tasks(), shots=(0, 4), progress=False).rows
    assert rows[1]["mse"] < 0.2 * rows[0]["mse"]
    fitted.save(str(tmp_path))
    again = mp.load(str(tmp_path), module=Offset())
    support, x = tasks()[0].support, torch.rand(5, 1)
    assert torch.equal(again.adapt(support).predict(x).mean, fitted.adapt(support).predict(x).mean)


def test_a_missing_target_of_the_support_set_is_as_if_it_were_not_there() -> None:
    started = learner().start(tasks())
    support, x = tasks()[0].support, torch.rand(5, 1)
    holes = Examples(support.x, support.y.index_fill(0, torch.tensor([1]), torch.nan))
    fewer = support.rows(torch.tensor([0, 2, 3]))
    assert torch.equal(started.adapt(holes).predict(x).mean, started.adapt(fewer).predict(x).mean)


def test_an_encoder_is_given_by_the_network_or_by_the_context() -> None:
    with pytest.raises(TypeError, match="takes the place of Context"):
        mp.MetaLearner(Offset(), mp.GaussianMixture(1), adaptation=mp.Context(encoder=nn.Identity())).start(tasks())
