import math

import pytest
import torch

from benchmarks.wheel.tasks import WheelTasks, contexts, encode, mean_rewards, observed_rewards, to_reward, to_target


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_mean_rewards_point_by_point() -> None:
    points = torch.tensor([[0.1, 0.2], [-0.3, 0.0], [0.6, 0.6], [0.6, -0.6], [-0.6, 0.6], [-0.6, -0.6], [0.5, 0.0]])
    expected = [
        [1, 1, 1, 1, 1.2],
        [1, 1, 1, 1, 1.2],
        [50, 1, 1, 1, 1.2],
        [1, 50, 1, 1, 1.2],
        [1, 1, 50, 1, 1.2],
        [1, 1, 1, 50, 1.2],
        [1, 1, 1, 1, 1.2],  # on the rim, which still belongs to the inside
    ]
    assert torch.equal(mean_rewards(points, 0.5), torch.tensor(expected))


def test_delta_one_never_pays_and_delta_zero_always() -> None:
    points = contexts(500, generator())
    assert float(mean_rewards(points, 1.0).max()) == pytest.approx(1.2)
    assert torch.equal((mean_rewards(points, 0.0) == 50).sum(1), torch.ones(500, dtype=torch.long))


def test_contexts_are_uniform_in_the_disc() -> None:
    count = 20_000
    points = contexts(count, generator())
    radius = points.norm(dim=1)
    assert points.shape == (count, 2)
    assert float(radius.max()) <= 1 + 1e-6
    for inner in (0.3, 0.5, 0.9):
        share = float((radius < inner).float().mean())
        assert abs(share - inner**2) < 4 * math.sqrt(inner**2 * (1 - inner**2) / count), "areas grow with the square"
    quadrants = torch.bincount(2 * (points[:, 0] > 0).long() + (points[:, 1] > 0).long(), minlength=4)
    assert (quadrants - count / 4).abs().max() < 4 * math.sqrt(count * 3 / 16)


def test_rewards_are_those_of_the_arm_that_was_pulled_with_a_noise_of_one_hundredth() -> None:
    points = torch.tensor([[0.6, -0.6]]).expand(6000, 2)
    actions = torch.arange(6000) % 3 + torch.tensor([0, 0, 2]).repeat(2000)  # arms 0, 1 and 4
    rewards = observed_rewards(points, actions, 0.5, generator())
    for arm, mean in ((0, 1.0), (1, 50.0), (4, 1.2)):
        seen = rewards[actions == arm].double()
        assert abs(float(seen.mean()) - mean) < 4 * 0.01 / math.sqrt(2000)
        assert abs(float(seen.std()) - 0.01) < 4 * 0.01 / math.sqrt(2 * 2000)


def test_encoding_is_context_and_one_of_five() -> None:
    encoded = encode(torch.tensor([[0.5, -0.25], [0.0, 1.0]]), torch.tensor([3, 0]))
    assert encoded.tolist() == [[0.5, -0.25, 0, 0, 0, 1, 0], [0, 1, 1, 0, 0, 0, 0]]


def test_targets_are_logarithms_and_go_back() -> None:
    rewards = torch.tensor([1.0, 1.2, 50.0], dtype=torch.float64)
    assert to_target(rewards).tolist() == pytest.approx([0, 0.1823215568, 3.9120230054])
    torch.testing.assert_close(to_reward(to_target(rewards)), rewards)
    with pytest.raises(ValueError, match=r"rewards have to be positive to have a logarithm, the smallest is -0\.5"):
        to_target(torch.tensor([1.0, -0.5]))


def test_tasks_hold_the_rewards_of_their_own_wheel() -> None:
    source = WheelTasks(k_shot=400, k_query=100, num_tasks=8, seed=3)
    deltas = [source.delta(i) for i in range(8)]
    assert len(set(deltas)) == 8
    for index, delta in enumerate(deltas):
        task = source[index]
        assert task.name == f"wheel {index} (delta {delta:.3f})"
        for part, count in ((task.support, 400), (task.query, 100)):
            assert part.x.shape == (count, 7)
            assert part.y.shape == (count, 1)
            means = (mean_rewards(part.x[:, :2], delta) * part.x[:, 2:]).sum(1)
            assert float((to_reward(part.y[:, 0]) - means).abs().max()) < 0.06


def test_arms_are_drawn_evenly_for_support_and_query() -> None:
    task = WheelTasks(k_shot=5000, k_query=5000, num_tasks=1)[0]
    for part in (task.support, task.query):
        assert (part.x[:, 2:].sum(0) - 1000).abs().max() < 4 * math.sqrt(5000 * 0.2 * 0.8)


def test_deltas_fill_the_range_asked_for() -> None:
    source = WheelTasks(num_tasks=300, delta_low=0.4, delta_high=0.6)
    deltas = [source.delta(i) for i in range(300)]
    assert 0.4 <= min(deltas) < 0.41
    assert 0.59 < max(deltas) <= 0.6
    assert WheelTasks(num_tasks=1, delta_low=0.5, delta_high=0.5).delta(0) == 0.5


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.5), (0.5, 1.1), (0.6, 0.5), (float("nan"), 1.0)])
def test_deltas_outside_the_disc_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=f"0 <= delta_low <= delta_high <= 1 is needed, got delta_low={low}"):
        WheelTasks(delta_low=low, delta_high=high)


def test_no_wheels_are_refused() -> None:
    with pytest.raises(ValueError, match="num_tasks must be an integer of at least 1, got 0"):
        WheelTasks(num_tasks=0)
    with pytest.raises(IndexError, match="there is no task 3; indices are 0 to 2"):
        WheelTasks(num_tasks=3).delta(3)
