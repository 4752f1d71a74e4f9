"""The units of the frames' own values: what a file says, what a user adds, and what to say where nobody knows."""

from dataclasses import replace

from metaprior.solar.maps.archives.archive import Archive

IRRADIANCE = "W m-2"
IRRADIANCE_SPELLINGS = {"W m-2", "W m**-2", "W m^-2", "W/m2", "W/m^2", "W/m**2"}
NO_UNITS = ("", "1")
"""What frames have whose file says nothing (and numbers that need no unit)."""
OF_THE_FRAMES = "units of the frames"


def units_or_words(units: str) -> str:
    """The units, or words that stand in their place: behind a number, in brackets and after "in"."""
    return OF_THE_FRAMES if units.strip() in NO_UNITS else units


def with_stated(archive: Archive, source: str, value_units: str | None, long_name: str | None) -> Archive:
    """The archive with what a user says of its values, where the file itself says nothing.

    Raises if the file says other units: one of the two is wrong, and a forecast would carry it on.
    """
    given = IRRADIANCE if value_units in IRRADIANCE_SPELLINGS else value_units
    found = archive.attrs.get("units")
    if given is not None and found is not None and given != found:
        raise ValueError(
            f"{source}: the file says that values are in {found!r}, but value_units is {value_units!r}; leave "
            "value_units out (it is for files that say nothing), or correct the file"
        )
    said = {"units": given, "long_name": long_name}
    known = {key: value for key, value in said.items() if value is not None}
    return replace(archive, attrs={**known, **archive.attrs})
