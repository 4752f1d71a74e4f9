"""The numbers of a run for TensorBoard, where it is installed: ``tensorboard --logdir RUN/tensorboard``."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from metaprior.callbacks import write_scalars
from metaprior.team import current_team

PNG_HEADER = b"\x89PNG\r\n\x1a\n"


class EventFiles:
    """The event files of a run; without a ``SummaryWriter`` nothing is written."""

    def __init__(self, writer: Any = None) -> None:
        self._writer = writer

    def add_epoch(self, line: dict[str, Any], peak_memory: float) -> None:
        """Add all numbers of a line of ``metrics.jsonl``, and the peak memory."""
        if self._writer is None:
            return
        write_scalars(self._writer, {**line, "peak_memory_bytes": peak_memory}, line["step"])

    def add_picture(self, name: str, path: Path, step: int) -> None:
        """Add a PNG file, which is not decoded."""
        if self._writer is None:
            return
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        content = path.read_bytes()
        if not content.startswith(PNG_HEADER):
            raise ValueError(f"{path} is not a PNG file")
        width, height = struct.unpack(">II", content[16:24])
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=content)
        self._writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)


@contextmanager
def event_files(folder: Path, step: int, say: Callable[[str], None]) -> Iterator[EventFiles]:
    """Open event files in a folder; without TensorBoard, and on all ranks but the first, nothing is written.

    After a resumption TensorBoard hides what lies beyond ``step``.
    """
    writer: Any = None
    if current_team().first:
        try:
            from torch.utils.tensorboard import SummaryWriter  # takes seconds to import
        except ModuleNotFoundError:
            say("note: no event files, because TensorBoard is not installed: pip install 'metaprior[tensorboard]'")
        else:
            writer = SummaryWriter(str(folder), purge_step=step + 1)  # hides what has this step or a later one
    with writer or nullcontext():
        yield EventFiles(writer)
