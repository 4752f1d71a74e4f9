"""Units of power: stated, or detected from the values and the capacity."""

from dataclasses import dataclass

from metaprior.solar.sites.plant import HOUR, Floats, usual_peak

ENERGY = {"Wh": "W", "kWh": "kW", "MWh": "MW"}
WATTS = {"W": 1.0, "kW": 1e3, "MW": 1e6}
SPELLINGS = {unit.lower(): unit for unit in (*WATTS, *ENERGY, "share", "%")} | {"wp": "W", "kwp": "kW", "mwp": "MW"}
LARGEST_SHARE = 1.2
PLAUSIBLE = (0.15, 1.6)
"""Largest power as a share of the nameplate capacity."""


def check_unit(unit: str) -> str:
    """Return the unit in its usual spelling; raise ValueError for an unknown one."""
    if unit.lower() not in SPELLINGS:
        raise ValueError(f'unit must be W, kW, MW, Wh, kWh, MWh (per interval), "share" or "%", got {unit!r}')
    return SPELLINGS[unit.lower()]


@dataclass(frozen=True)
class Scale:
    """How the numbers of a table become power.

    Args:
        unit: Unit of the power: W, kW, MW or "share".
        factor: What the numbers are multiplied by.
        told: A sentence about it.
        certain: Whether the unit is stated or follows from the values.
    """

    unit: str
    factor: float
    told: str
    certain: bool = True


SMALLEST, LARGEST = 100.0, 3e9
"""Watts between which the capacity of a single plant lies."""


def contradicting_unit(stated: str, header: str | None) -> str | None:
    """Return what is said about a stated unit that is not the one of the column's name; None if they agree."""
    if header is None or header == stated:
        return None
    return f"power is in {stated} as stated, and the name of its column says {header}: one of the two is wrong"


def implausible_capacity(capacity: float, unit: str) -> str | None:
    """Return what is said about a capacity that no single plant has; None for others."""
    if unit == "share" or SMALLEST <= capacity * WATTS[unit] <= LARGEST:
        return None
    size = "large" if capacity * WATTS[unit] > LARGEST else "small"
    return f"a capacity of {capacity:,.6g} {unit} is too {size} for a plant: the unit is probably wrong. Try unit="


def scale_of(unit: str | None, source: str, values: Floats, step: int, capacity: tuple[float, str] | None) -> Scale:
    """Return how the values of a plant become power.

    Args:
        unit: The unit that is stated, or None.
        source: Where it is stated, for the sentence.
        values: The numbers of the table.
        step: Length of an interval in seconds.
        capacity: Capacity and its unit, where both are stated.
    """
    if unit in ENERGY:
        return Scale(
            ENERGY[unit], HOUR / step, f"energy in {unit} per interval {source} became power in {ENERGY[unit]}"
        )
    if unit == "%":
        return Scale("share", 0.01, f"power in % of capacity {source} became a share")
    if unit is not None:
        return Scale(unit, 1.0, f"power is {'a share of the capacity' if unit == 'share' else f'in {unit}'} {source}")
    peak = usual_peak(values)
    if capacity is not None:
        nameplate = capacity[0] * WATTS[capacity[1]]
        fits = [unit for unit, watts in WATTS.items() if PLAUSIBLE[0] < peak * watts / nameplate < PLAUSIBLE[1]]
        if fits:
            return Scale(fits[0], 1.0, f"power is in {fits[0]}, as its largest values fit the capacity")
    if 0 < peak <= LARGEST_SHARE and (capacity is None or PLAUSIBLE[0] < peak < PLAUSIBLE[1]):
        return Scale("share", 1.0, f"power is a share of the capacity, as its largest values are about {peak:.2g}")
    return Scale(
        "kW",
        1.0,
        "the unit of the power is not stated and is called kW; shares of the capacity do not depend on it",
        False,
    )


def capacity_in(unit: str, capacity: float, stated: str | None, peak: float) -> tuple[float, str | None]:
    """Return the capacity in the unit of the power, and what is said about its unit.

    Where its unit is not stated, it is that of the power, or a thousand times larger or smaller if only that fits.
    """
    if unit == "share":
        return 1.0, None if capacity == 1 else f"the capacity of {capacity:g} is not used: power is a share of it"
    if stated is not None:
        return capacity * WATTS[stated] / WATTS[unit], None
    factors = [1.0, 1e3, 1e-3, 1e6, 1e-6]
    fits = [factor for factor in factors if peak and PLAUSIBLE[0] < peak / (capacity * factor) < PLAUSIBLE[1]]
    factor = fits[0] if fits else 1.0
    if factor == 1:
        return capacity, None
    return (
        capacity * factor,
        f"the capacity of {capacity:g} is {capacity * factor:.12g} {unit}, as only that fits the power",
    )
