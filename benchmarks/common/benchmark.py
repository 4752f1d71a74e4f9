"""What a benchmark is: a description, what it needs, two sets of settings, and a function that measures."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.common.data import DataSet
from benchmarks.common.data_folder import data_folder
from benchmarks.common.processes import run_all
from benchmarks.common.result import BenchmarkResult

EXTRAS = {
    "bench": ("higher", "torchopt"),
    "solar": ("xarray", "netCDF4", "zarr", "pvlib"),
    "flow": ("pysteps", "cv2"),
    "table": ("sklearn", "ngboost", "laplace", "statsmodels"),
}
"""Modules that each of the package's extras installs, as far as a benchmark uses them."""

S = TypeVar("S")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Context(Generic[S]):
    """What a benchmark is run with: its settings, the folder of public data, and the number of processes."""

    settings: S
    data: Path
    workers: int | None = None
    label: str = ""

    def map(self, function: Callable[..., Found], jobs: Sequence[tuple[Any, ...]]) -> list[Found]:
        """Return ``function(context, *job)`` for every job in order, computed by ``workers`` processes."""
        return run_all(function, [(self, *job) for job in jobs], workers=self.workers, label=self.label)


@dataclass(frozen=True)
class Benchmark(Generic[S]):
    """A benchmark, declared as ``BENCHMARK`` in the module or folder of its name.

    Args:
        name: The name on the command line.
        description: What is measured, in one line.
        measure: Computes the result from the settings and the other contents of a ``Context``.
        full: The settings that published tables come from, a frozen dataclass.
        quick: Smaller settings that show within about a minute that the benchmark runs.
        quick_note: What the results of ``quick`` cannot be used for.
        larger: The settings of ``--full``, for a benchmark that has a part too long to run by default.
        data: Public data sets that have to be in the data folder.
        extras: Extras of the package that have to be installed.
        conditions: Further needs, as text.
    """

    name: str
    description: str
    measure: Callable[[Context[S]], BenchmarkResult]
    full: S
    quick: S
    quick_note: str
    larger: S | None = None
    data: tuple[DataSet, ...] = ()
    extras: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    @property
    def needs(self) -> str:
        """What has to be there before it runs, as a table shows it."""
        names = ", ".join(f"`{extra}`" for extra in self.extras)
        extras = [f"extra{'s' * (len(self.extras) > 1)} {names}"] if self.extras else []
        return ", ".join([*["data"] * bool(self.data), *extras, *self.conditions]) or "nothing"

    def run(
        self,
        *,
        quick: bool = False,
        larger: bool = False,
        settings: S | None = None,
        parts: Sequence[str] = (),
        data: Path | None = None,
        workers: int | None = None,
    ) -> BenchmarkResult:
        """Return the measured result, with the settings and the note on ``quick`` added.

        Args:
            quick: Use the small settings.
            larger: Use the largest settings.
            settings: Use these settings instead of the declared ones.
            parts: Measure these parts only, for a benchmark whose settings have ``parts``.
            data: The data folder (default: $METAPRIOR_DATA, else ../shared/data).
            workers: Processes at once (default: one for each core; 0: none but this one).

        Raises:
            FileNotFoundError: A data set is not in the data folder.
            ModuleNotFoundError: An extra is not installed.
            ValueError: ``larger`` together with ``quick``, or for a benchmark without larger settings; ``parts`` for a
                benchmark without any, or an unknown one.
        """
        chosen = settings or self._settings(quick, larger)
        if parts:
            if not hasattr(chosen, "parts"):
                raise ValueError(f"--part is for benchmarks that have parts, {self.name} has none")
            chosen = replace(chosen, parts=tuple(parts))  # type: ignore[type-var]
        folder = data_folder(data)
        self.check_needs(folder)
        found = self.measure(Context(chosen, folder, workers, self.name))
        about: dict[str, Any] = {"bench": self.name, "quick": quick, **asdict(chosen), **found.settings}  # type: ignore[call-overload]
        return replace(found, settings=about, notes=[*found.notes, *[f"--quick: {self.quick_note}"] * quick])

    def _settings(self, quick: bool, larger: bool) -> S:
        if larger and quick:
            raise ValueError("--quick and --full must not be given together. Choose one.")
        if larger and self.larger is None:
            raise ValueError(f"--full is for benchmarks with a part that is too long by default, {self.name} has none")
        return self.quick if quick else self.larger if larger and self.larger is not None else self.full

    def check_needs(self, folder: Path) -> None:
        """Raise if data or an extra are missing: before an hour of training instead of after it."""
        for data in self.data:
            data.check(folder)
        for extra in self.extras:
            absent = [module for module in EXTRAS[extra] if find_spec(module) is None]
            if absent:
                raise ModuleNotFoundError(
                    f"{self.name} needs {', '.join(absent)}. Try: pip install 'metaprior[{extra}]'", name=absent[0]
                )
