"""Units and name of the values: as the file states them, as a user gives them, and irradiance always in W m-2."""

from dataclasses import replace

import numpy as np

from metaprior.solar.maps.archives.archive import Archive, multiplied
from metaprior.solar.maps.archives.notes import Notes
from metaprior.solar.value_units import IRRADIANCE, NO_UNITS, OVERRIDE, flux_of, one_spelling

SUMMED_SHARE = 0.1
"""Share of frames with too much energy from which it is taken to be summed over several steps."""
SECOND = np.timedelta64(1, "s")


def described(
    archive: Archive, source: str, value_units: str | None, long_name: str | None, step: np.timedelta64, notes: Notes
) -> Archive:
    """Return the archive with one spelling of its units, and with power and energy on an area in W m-2.

    Units that a user gives are for files that state none; before an exclamation mark they replace those of the file.
    Other units than the file's are a problem: one of the two is wrong, and every forecast would inherit it.
    """
    stated = one_spelling(archive.attrs.get("units", ""))
    units = _settled(source, stated, value_units, notes)
    given = {"long_name": long_name, **archive.attrs, "units": units}
    attrs = {key: text for key, text in given.items() if text is not None}
    if units is None:
        notes.finding("units of the values are not stated: value_units= gives them")
    flux = flux_of(units) if units else None
    if flux is None or flux.units == IRRADIANCE:
        return replace(archive, attrs=attrs)
    seconds = float(step / SECOND)
    factor = flux.factor / (seconds if flux.per_step else 1.0)
    if flux.per_step:
        notes.finding(f"{units} is energy of one step: divided by {seconds:g} s, so values are in {IRRADIANCE}")
    else:
        notes.finding(f"{units} multiplied by {factor:g}, so values are in {IRRADIANCE}")
    return replace(archive, variable=multiplied(archive.variable, factor), attrs={**attrs, "units": IRRADIANCE})


def check_not_summed(source: str, stated: str, bad: int, count: int, notes: Notes) -> None:
    """Raise if energy of one step is too much in many frames: it is summed from the start of a run or a day."""
    if bad < SUMMED_SHARE * count or not ((flux := flux_of(one_spelling(stated))) and flux.per_step):
        return
    notes.stop(
        source,
        f"{source}: {stated} must be the energy of one step, and in {bad} of {count} frames it would be more than the "
        "sun gives. It is probably summed from the start of a run or a day: take differences first (in Python, "
        "xarray's diff('time')), or give other units: value_units=\"!W m-2\"",
    )


def _settled(source: str, stated: str, value_units: str | None, notes: Notes) -> str | None:
    """Return the units of the stored values, or None if nobody states any."""
    if value_units is None:
        return stated or None
    given = one_spelling(value_units.removeprefix(OVERRIDE))
    if value_units.startswith(OVERRIDE):
        if stated not in (*NO_UNITS, given):
            notes.finding(f"units are {given}, as given, and not {stated}, as the file states")
        return given
    if not stated or stated == given:
        return given
    if given == IRRADIANCE and flux_of(stated) is not None:  # they will be
        return stated
    notes.problem(
        f"{source}: value_units must be the units of the file, {stated!r}, got {value_units!r}. Leave it out, or "
        f'if the file is wrong replace its units: value_units="{OVERRIDE}{given}"'
    )
    return stated
