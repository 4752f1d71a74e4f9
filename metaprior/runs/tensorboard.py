"""The same numbers for TensorBoard: ``tensorboard --logdir RUN/tensorboard``."""

import math
import struct
from pathlib import Path
from types import TracebackType
from typing import Any

from metaprior.training.epoch import peak_memory

PNG_HEADER = b"\x89PNG\r\n\x1a\n"


class TensorBoard:
    """Event files in a folder. After a resumption, what lies beyond ``step`` is not shown."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # seconds to import, so only where it is needed

        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1)  # hides what has this step or a later one

    def add_epoch(self, line: dict[str, Any]) -> None:
        """All numbers of a line of ``metrics.jsonl``, and the memory."""
        for name, value in [*_numbers(line), ("peak_memory_bytes", peak_memory())]:
            if math.isfinite(value):
                self._writer.add_scalar(name, value, line["step"])
        self._writer.flush()

    def add_picture(self, name: str, path: Path, step: int) -> None:
        """A PNG file as it is; nothing needs to be decoded."""
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        content = path.read_bytes()
        if not content.startswith(PNG_HEADER):
            raise ValueError(f"{path} is not a PNG file")
        width, height = struct.unpack(">II", content[16:24])
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=content)
        self._writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()


def _numbers(line: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """Numbers at any depth, by their path."""
    found: list[tuple[str, float]] = []
    for key, value in line.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key not in ("epoch", "step"):
            found.append((prefix + key, float(value)))
    return found
