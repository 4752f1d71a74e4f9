"""Large frames in blocks: each is a window of its own, and where two overlap their forecasts are blended.

A block is normalised by its own values and has its own motion, as the windows of the training had. Weights fall from 1
to 0 over the overlap, so a forecast has no seams (the tests compare its steps there with those elsewhere).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST, OVERLAP = 512, 64
"""Pixels of a block along a side, and of the overlap of two blocks."""


class Block(NamedTuple):
    """A part of a frame: slices of rows and columns."""

    rows: slice
    columns: slice


def blocks_of(height: int, width: int) -> list[Block]:
    """Return blocks that cover a frame; neighbours overlap by at least ``OVERLAP`` pixels."""
    return [Block(rows, columns) for rows in _spans(height) for columns in _spans(width)]


def _spans(length: int) -> list[slice]:
    if length <= LARGEST:
        return [slice(0, length)]
    count = math.ceil((length - OVERLAP) / (LARGEST - OVERLAP))
    size = math.ceil((length + (count - 1) * OVERLAP) / count)
    starts = [round(number * (length - size) / (count - 1)) for number in range(count)]
    return [slice(start, start + size) for start in starts]


def blend(parts: Sequence[tuple[Block, Tensor]], shape: tuple[int, int]) -> Tensor:
    """Return the whole maps (..., H, W) from those of the blocks: their mean, with weights that fall in overlaps."""
    if len(parts) == 1:
        return parts[0][1]
    first = parts[0][1]
    total, weights = first.new_zeros(*first.shape[:-2], *shape), first.new_zeros(shape)
    for block, maps in parts:
        weight = _ramp(block.rows, shape[0])[:, None] * _ramp(block.columns, shape[1])
        total[..., block.rows, block.columns] += weight * maps
        weights[block.rows, block.columns] += weight
    return total / weights


def _ramp(span: slice, length: int) -> Tensor:
    """Return weights of the pixels of a span: 1 in the middle, falling to 0 where there is a neighbour."""
    count = span.stop - span.start
    steps = (torch.arange(count) + 0.5) / OVERLAP
    before = steps if span.start > 0 else torch.ones(count)
    after = steps.flip(0) if span.stop < length else torch.ones(count)
    return torch.minimum(before, after).clamp_max(1.0)
