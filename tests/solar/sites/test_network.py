"""The profile of support days against a plain loop, and the network that looks it up."""

import torch

from metaprior.solar.sites.network import HOURS, MEMORY, STATISTICS, TOTALS, SiteNetwork, SupportProfile
from metaprior.solar.sites.rows import COLUMNS, WIDTH
from metaprior.solar.sites.training import simulated_tasks


def support(days: int, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x, y = torch.zeros(24 * days, WIDTH), torch.rand(24 * days, 1, generator=g)
    x[:, COLUMNS["hour"]] = (torch.arange(24 * days)[:, None] + 5) % 24
    x[:, COLUMNS["age"]] = torch.arange(24 * days, 0, -1)[:, None] / 24
    x[:, COLUMNS["base"]], x[:, COLUMNS["base_there"]] = 0.5 * y + 0.1, 1.0
    y[torch.rand(24 * days, generator=g) < 0.2] = torch.nan
    return x, y


def test_a_profile_is_what_a_loop_over_hours_finds() -> None:
    (x, y), (x2, y2) = support(4), support(2, seed=1)
    found = SupportProfile()(torch.cat([x, x2]), torch.cat([y, y2]), torch.tensor([96, 0, 48]))
    assert found.shape == (3, SupportProfile.size)
    assert not found[1].any()
    table = found[0, : -len(TOTALS)].reshape(HOURS, len(STATISTICS))
    for hour in range(HOURS):
        own = (x[:, COLUMNS["hour"]][:, 0] == hour) & ~y[:, 0].isnan()
        values, ages = y[own, 0], x[own, COLUMNS["age"]][:, 0]
        if not len(values):
            assert not table[hour].any()
            continue
        weights = torch.exp(-ages / MEMORY)
        expected = [
            values.mean(),
            values.max(),
            values.min(),
            values.std(correction=0),
            (weights * values).sum() / weights.sum(),
        ]
        torch.testing.assert_close(table[hour], torch.stack(expected))
    there = ~y[:, 0].isnan()
    p, b = y[there, 0], x[there, COLUMNS["base"]][:, 0]
    scale = (p * b).sum() / (b * b).sum()
    hours = x[there, COLUMNS["hour"]][:, 0]
    rest = [torch.stack([v[i] - v[hours == h].mean() for i, h in enumerate(hours)]) for v in (p, b)]
    skill = (rest[0] * rest[1]).sum() / (rest[0].square().sum() * rest[1].square().sum()).sqrt()
    days = torch.stack([(hours == h).sum() for h in range(24)]).max().float()
    totals = torch.stack([days, days, scale, (p - scale * b).abs().sum() / p.sum(), skill])
    torch.testing.assert_close(found[0, -len(TOTALS) :], totals)


def test_an_hour_reads_the_profile_of_its_own_time_of_day() -> None:
    network = SiteNetwork().double()
    x = torch.zeros(3, WIDTH, dtype=torch.float64)
    x[:, COLUMNS["lead"]], x[:, COLUMNS["hour"]] = 1.0, torch.tensor([[3.0], [12.0], [23.0]]).double()
    context = torch.zeros(SupportProfile.size, dtype=torch.float64).index_fill(0, torch.tensor([12 * 5]), 0.7)
    context[-len(TOTALS)] = 1.0
    changed = network(x, context) - network(x, torch.zeros_like(context).index_fill(0, torch.tensor([120 + 0]), 1.0))
    assert changed[1].abs().max() > 1e-3
    each = context.expand(3, -1)
    torch.testing.assert_close(network(x, context), network(x, each))


def test_missing_values_reach_no_output() -> None:
    tasks = simulated_tasks(4, seed=3, days=50)
    network = SiteNetwork()
    for number in range(20):
        task = tasks[number]
        context = SupportProfile()(task.support.x, task.support.y, torch.tensor([task.support.size]))
        assert torch.isfinite(network(task.query.x, context[0])).all()
        assert torch.isfinite(task.query.y).any()
