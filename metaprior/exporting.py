"""Forecasts without this package: the mean and the standard deviation as a graph of torch's own operations."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from metaprior.forecasts import Forecast
from metaprior.inputs import Inputs, map_parts, parts_of, rows_of


class MeanAndStd(nn.Module):
    """Inputs in, mean and standard deviation of the forecast from fixed weight samples out."""

    def __init__(self, forecast: Callable[[Inputs, Tensor], Forecast], phis: Tensor) -> None:
        super().__init__()
        self._forecast = forecast
        self.register_buffer("phis", phis)

    def forward(self, x: Inputs) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation, in the units of the targets; raise for inputs of another type."""
        for part in parts_of(x):
            torch.ops.aten._assert_tensor_metadata(part, dtype=part.dtype)
        found = self._forecast(x, self.get_buffer("phis"))
        return found.mean, found.std


def exported(
    forecast: Callable[[Inputs, Tensor], Forecast],
    phis: Tensor,
    x: Inputs,
    path: str | Path | None,
) -> ExportedProgram:
    """Return a forecast as a program for any number of observations like those of x, also written to ``path``.

    Args:
        forecast: returns the forecast for inputs from weight samples, by a network in evaluation mode.
        phis: the weight samples that the program holds.
        x: inputs, of which only the type and the shape of one observation count.
        path: file to write; None writes none.
    """
    module = MeanAndStd(forecast, phis)
    with torch.no_grad():
        module(rows_of(x, slice(2)))  # errors of the data and the units are told before those of tracing
        program = _traced(module, x)
    if path is not None:
        torch.export.save(program, path)
    return program


def _traced(module: MeanAndStd, x: Inputs) -> ExportedProgram:
    # Its shape and type count; the file holds it, so not the caller's numbers.
    example = map_parts(lambda part: part.new_zeros(2, *part.shape[1:]), x)
    batch = torch.export.Dim("batch")
    try:
        return torch.export.export(module, (example,), dynamic_shapes={"x": map_parts(lambda _: {0: batch}, x)})
    except Exception as error:  # of many types: whatever a module's code does not do with symbols
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"the network must be one that torch.export can trace for any number of observations, got {first!r}. Try "
            "torch.export.export on the module itself, which says where: control flow that depends on data, and sizes "
            "that depend on the batch, are what usually prevents it"
        ) from error
