"""Mini-batches of data in memory and of data that are streamed."""

from collections.abc import Iterator
from itertools import islice

import pytest
import torch

import metaprior as mp
from metaprior.minibatches import HeldOutData, ShuffledData, StreamedData, WeightedExamples
from metaprior.tasks.task import Examples

TEN = Examples(torch.arange(10.0), torch.arange(10.0))


def in_threes(data: Examples = TEN) -> Iterator[Examples]:
    yield from (Examples(x, y) for x, y in zip(data.x.split(3), data.y.split(3), strict=True))


def test_a_pass_of_shuffled_data_has_every_observation_once() -> None:
    batches = ShuffledData([TEN, TEN], [0, 1], 4, "geometric", mp.Noise(0), weights=TEN.y.expand(2, -1))
    assert batches.count == 3
    assert torch.equal(torch.as_tensor(batches.observations), torch.tensor([45.0, 45.0]))
    two_passes = list(islice(batches, 6))
    orders = [torch.cat([batch.examples.x for batch in part], 1) for part in (two_passes[:3], two_passes[3:])]
    for order in orders:
        assert torch.equal(order.sort(1).values, TEN.x.expand(2, 10))
        assert not torch.equal(order[0], order[1]), "each member has an order of its own"
    assert not torch.equal(orders[0], orders[1]), "and each pass"
    assert sum(batch.kl_share for batch in two_passes[:3]) == pytest.approx(1)
    assert all(batch.weights is not None and torch.equal(batch.weights, batch.examples.y) for batch in two_passes)
    later = next(iter(ShuffledData([TEN, TEN], [0, 1], 4, "geometric", mp.Noise(0), taken=4)))
    assert torch.equal(later.examples.x, two_passes[4].examples.x)
    assert later.kl_share == two_passes[4].kl_share


def test_streamed_batches_are_those_of_every_pass_for_all_members() -> None:
    data = StreamedData(in_threes, 4, 10, 3, members=2)
    found = list(islice(data, 8))
    assert [batch.examples.x.shape for batch in found] == [(2, 3)] * 3 + [(2, 1)] + [(2, 3)] * 3 + [(2, 1)]
    assert torch.equal(torch.cat([batch.examples.x for batch in found[4:]], 1), TEN.x.expand(2, 10))
    assert [batch.kl_share for batch in found[:4]] == [0.25] * 4
    assert [piece.examples.size for piece in data.pieces()] == [3, 3, 3, 1]


@pytest.mark.parametrize(("count", "found"), [(3, "more"), (5, "4")])
def test_a_pass_of_another_length_is_refused(count: int, found: str) -> None:
    data = StreamedData(in_threes, count, 10, 3)
    message = f"equally many batches in every pass, got {count} in the first one and {found} in a later one. Try"
    with pytest.raises(ValueError, match=message):
        list(data.pieces())
    with pytest.raises(ValueError, match=message):
        list(islice(data, 6))


def test_pieces_of_held_out_data_have_their_weights() -> None:
    held_out = HeldOutData(WeightedExamples(TEN, TEN.y), 4)
    pieces = list(held_out.pieces())
    assert [piece.examples.size for piece in pieces] == [4, 4, 2]
    assert (held_out.largest, held_out.observations) == (4, 45)
    for (x, _), weights in pieces:
        assert weights is not None
        assert torch.equal(x, weights)
