"""Blocks cover a frame, and what is blended from them has no seams."""

from itertools import pairwise

import pytest
import torch

from metaprior.solar.maps.nowcast import blocks
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.blocks import LARGEST, OVERLAP, blend, blocks_of
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS, Known
from tests.solar.maps.nowcast.small import nowcaster, world


@pytest.mark.parametrize("length", [1, 100, LARGEST, LARGEST + 1, 700, 2000, 5500])
def test_spans_cover_every_pixel_and_overlap(length: int) -> None:
    spans = [block.rows for block in blocks_of(length, 10)]
    assert spans[0].start == 0
    assert spans[-1].stop == length
    assert all(span.stop - span.start <= LARGEST for span in spans)
    assert all(one.stop - other.start >= OVERLAP for one, other in pairwise(spans))


def test_a_blend_of_parts_of_one_map_is_that_map() -> None:
    whole = torch.randn(2, 3, 700, 900)
    parts = [(block, whole[..., block.rows, block.columns]) for block in blocks_of(700, 900)]
    assert len(parts) == 4
    torch.testing.assert_close(blend(parts, (700, 900)), whole)


def test_a_forecast_in_blocks_has_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = torch.from_numpy(world(days=1, size=160).values[:, :INPUTS])
    window = Batch(
        frames, frames.new_full((1, LEADS, 160, 160), torch.nan), Known.nothing(frames), torch.tensor([15.0])
    )
    own = nowcaster()
    whole = own.predict(window)
    monkeypatch.setattr(blocks, "LARGEST", 96)
    monkeypatch.setattr(blocks, "OVERLAP", 32)
    assert len(blocks_of(160, 160)) == 4
    parts = own.predict(window)
    steps = (parts.mean[..., 1:] - parts.mean[..., :-1]).abs().mean((0, 1, 2))
    edges = sorted({edge - 1 for block in blocks_of(160, 160) for edge in (block.columns.start, block.columns.stop)})
    inner = [edge for edge in edges if 0 <= edge < len(steps)]
    assert float(steps[inner].mean()) < 1.5 * float(steps.median())
    assert float((parts.mean - whole.mean).abs().mean()) < float(whole.std.mean())
