"""Sets of classes: coverage that is known exactly, cases by hand, missing labels and wrong inputs."""

import math

import numpy as np
import pytest
import torch

from metaprior import conformal
from metaprior.conformal.scores import SET_SCORES, adaptive_scores
from metaprior.forecasts.numpy_forecast import NumpyForecast
from tests.conformal.made_up import bits, classes, drawn, drawn_labels, normal

REPEATS = 4000


@pytest.mark.parametrize("score", ["aps", "lac"])
@pytest.mark.parametrize(("count", "level"), [(9, 0.9), (15, 0.8)])
def test_the_coverage_is_the_exact_one(score: str, count: int, level: float) -> None:
    """Every place of the last axis is a calibration of its own, and one new observation."""
    logits = drawn(count + 1, 4, REPEATS)
    truth = (2 * logits).softmax(1).movedim(1, -1).reshape(-1, 4)
    labels = drawn_labels(truth).reshape(count + 1, REPEATS)
    probabilities = logits.softmax(1)
    found = conformal.sets(classes(probabilities[:-1]), labels[:-1], level, score=score)
    inside = found.sets(classes(probabilities[-1:])).gather(1, labels[-1:, None]).double().mean()
    expected = math.ceil(round((count + 1) * level, 9)) / (count + 1)
    assert float(inside) == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / REPEATS))
    assert found.coverage(classes(probabilities[-1:]), labels[-1:]) == float(inside)


def test_without_random_numbers_sets_are_never_empty_and_cover_at_least_the_level() -> None:
    probabilities = (3 * drawn(4000, 5)).softmax(1)
    labels = drawn_labels(probabilities)
    found = conformal.sets(classes(probabilities[:2000]), labels[:2000], 0.9, score="aps_deterministic")
    sets = found.sets(classes(probabilities[2000:]))
    assert int(sets.sum(1).min()) >= 1
    assert float(sets.gather(1, labels[2000:, None]).double().mean()) > 0.88
    assert bool(sets.gather(1, probabilities[2000:].argmax(1, keepdim=True)).all())


def test_scores_by_hand() -> None:
    p = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]], dtype=torch.float64)
    u = torch.tensor([0.5, 0.0], dtype=torch.float64)
    torch.testing.assert_close(adaptive_scores(p, u), p.new_tensor([[0.9, 0.25, 0.65], [0.0, 0.8, 0.4]]))


def test_lac_by_hand() -> None:
    p = torch.tensor([0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55], dtype=torch.float64)
    forecast = classes(torch.stack([p, 1 - p], 1))
    found = conformal.sets(forecast, torch.zeros(9, dtype=torch.long), 0.8, score="lac")
    assert float(found.threshold) == pytest.approx(0.4)  # the 8th smallest of 1 - p
    new = classes(torch.tensor([[0.9, 0.1], [0.61, 0.39], [0.5, 0.5]], dtype=torch.float64))
    assert found.sets(new).tolist() == [[True, False], [True, False], [False, False]]


def test_random_numbers_are_those_of_their_seed() -> None:
    probabilities = drawn(300, 5).softmax(1)
    labels = drawn_labels(probabilities)
    one, same, other = (conformal.sets(classes(probabilities), labels, seed=seed) for seed in (1, 1, 2))
    assert float(one.threshold) == float(same.threshold) != float(other.threshold)
    sets = [one.sets(classes(probabilities), seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(sets[0], sets[1])
    assert not torch.equal(sets[0], sets[2])


@pytest.mark.parametrize("score", SET_SCORES)
def test_bits_are_two_classes(score: str) -> None:
    one = torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05
    labels = drawn_labels(torch.stack([1 - one, one], 1))
    found = conformal.sets(bits(one), labels, 0.8, score=score)
    sets = found.sets(NumpyForecast(bits(one)))
    assert isinstance(sets, np.ndarray)
    assert sets.shape == (200, 2)
    assert sets.dtype == bool
    of_classes = conformal.sets(classes(torch.stack([1 - one, one], 1)), labels, 0.8, score=score)
    assert float(found.threshold) == pytest.approx(float(of_classes.threshold))
    several = conformal.sets(bits(one.reshape(100, 2)), labels.reshape(100, 2).double(), 0.8, score=score)
    assert several.threshold.shape == (2,)
    assert several.sets(bits(one.reshape(100, 2))).shape == (100, 2, 2)


def test_missing_labels_and_groups() -> None:
    probabilities = drawn(60, 3).softmax(1)
    labels = drawn_labels(probabilities)
    labels[:20] = -100
    found = conformal.sets(classes(probabilities), labels, score="lac")
    rest = conformal.sets(classes(probabilities[20:]), labels[20:], score="lac")
    assert (float(found.threshold), found.observations, found.missing) == (float(rest.threshold), 40, 20)
    grouped = conformal.sets(classes(probabilities[20:]), labels[20:], score="lac", groups=[0, 1] * 20)
    alone = conformal.sets(classes(probabilities[20::2]), labels[20::2], score="lac")
    assert float(grouped.groups[0]) == float(alone.threshold)
    sets = grouped.sets(classes(probabilities[20:]), [0, 1] * 20)
    assert torch.equal(sets[::2], alone.sets(classes(probabilities[20::2])))


def test_too_few_labels_give_sets_of_all_classes() -> None:
    with pytest.warns(UserWarning, match="infinite"):
        found = conformal.sets(classes(torch.full((3, 4), 0.25)), torch.zeros(3, dtype=torch.long))
    assert bool(found.sets(classes(torch.full((3, 4), 0.25))).all())


@pytest.mark.parametrize("wrong", [4, -1, 0.5, math.nan])
def test_labels_that_are_none_raise(wrong: float) -> None:
    labels = torch.zeros(20)
    labels[3] = wrong
    with pytest.raises(ValueError, match="labels must be integers from 0 to 3"):
        conformal.sets(classes(torch.full((20, 4), 0.25)), labels)


def test_wrong_inputs_raise() -> None:
    with pytest.raises(TypeError, match=r"forecast of labels, got a GaussianForecast. Try conformal.intervals"):
        conformal.sets(normal(drawn(20)), torch.zeros(20))
    with pytest.raises(ValueError, match="score must be one of 'aps', 'aps_deterministic', 'lac', got 'std'"):
        conformal.sets(classes(torch.full((20, 4), 0.25)), torch.zeros(20), score="std")
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1, got 1"):
        conformal.sets(classes(torch.full((20, 4), 0.25)), torch.zeros(20), 1)
