"""Write simulated plants as users have theirs: a table of power, one of the plants, and the truth beside them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.files import written_when_complete
from metaprior.solar.sites.plant import BASE, Plant
from metaprior.solar.sites.simulator.parameters import PlantParameters

DIGITS = 5


def paths_beside(path: Path) -> tuple[Path, Path]:
    """Return the paths of the table of plants and of their true parameters, for that of the table of power."""
    return path.with_name(f"{path.stem}_sites.csv"), path.with_name(f"{path.stem}_truth.json")


def check_path(path: Path, *, overwrite: bool) -> None:
    """Raise unless the tables can be written there."""
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path}: the path of a table of power must end in .csv or .parquet, got {path.suffix!r}")
    for one in (path, *paths_beside(path)):
        if one.exists() and not overwrite:
            raise FileExistsError(f"{one} exists. Give another path, or overwrite=True (--overwrite) to replace it")


def power_table(plants: Sequence[Plant]) -> pd.DataFrame:
    """Return plants in kW as a long table: site, time (UTC), power_kw and, where plants have one, base_kw.

    A base forecast that is longer than the power adds rows without power. Other missing power has no row.
    """
    parts = []
    for plant in plants:
        base = plant.future.get(BASE)
        count = len(plant) if base is None else len(base)
        power = np.concatenate([plant.power, np.full(count - len(plant), np.nan)])
        part = pd.DataFrame({"site": plant.name, "time": plant.times_until(count), "power_kw": _rounded(power)})
        if base is not None:
            part["base_kw"] = _rounded(base)
        parts.append(part[np.isfinite(power) | (np.arange(count) >= len(plant))])
    table = pd.concat(parts, ignore_index=True)
    table["time"] = table["time"].dt.tz_localize("UTC")
    return table


def write_power(
    plants: Sequence[Plant], parameters: Sequence[PlantParameters], path: Path, *, overwrite: bool = False
) -> None:
    """Write the table of power (.csv or .parquet), ``*_sites.csv`` with what owners know, and ``*_truth.json``.

    Each file appears when it is complete; existing ones are replaced only with ``overwrite``.
    """
    check_path(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = power_table(plants)
    facts = [
        {
            "site": plant.name,
            "capacity_kw": round(float(plant.capacity or np.nan), 3),
            "latitude": round(truth.latitude, 4),
            "longitude": round(truth.longitude, 4),
        }
        for plant, truth in zip(plants, parameters, strict=True)
    ]
    truths = {plant.name: asdict(truth) for plant, truth in zip(plants, parameters, strict=True)}
    sites_path, truth_path = paths_beside(path)
    with written_when_complete(path) as temporary:
        if path.suffix == ".parquet":
            table.to_parquet(temporary, index=False)
        else:
            table.to_csv(temporary, index=False, date_format="%Y-%m-%dT%H:%M:%SZ")
    with written_when_complete(sites_path) as temporary:
        pd.DataFrame(facts).to_csv(temporary, index=False)
    with written_when_complete(truth_path) as temporary:
        temporary.write_text(json.dumps(truths, indent=1))


def _rounded(values: np.ndarray) -> np.ndarray:
    """Return the values with ``DIGITS`` digits of the highest one."""
    highest = np.nanmax(np.abs(values), initial=0)
    return values if highest == 0 else np.round(values, DIGITS - 1 - int(np.floor(np.log10(highest))))
