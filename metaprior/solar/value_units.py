"""Units of the values of frames: the spelling of irradiance, and the words for units that are not known."""

IRRADIANCE = "W m-2"
IRRADIANCE_SPELLINGS = {"W m-2", "W m**-2", "W m^-2", "W/m2", "W/m^2", "W/m**2"}
NO_UNITS = ("", "1")
"""Units of frames whose file states none; also those of numbers without a unit."""
UNITS_OF_THE_FRAMES = "units of the frames"


def units_or_words(units: str) -> str:
    """Return the units, or words that can stand in their place after a number, in brackets and after "in"."""
    return UNITS_OF_THE_FRAMES if units.strip() in NO_UNITS else units


def units_text(units: str) -> str:
    """Return the units as a page shows them: irradiance in W/m², words for unknown units."""
    return "W/m²" if units in IRRADIANCE_SPELLINGS else units_or_words(units)


def one_spelling(units: str) -> str:
    """Return the units with every spelling of irradiance replaced by the one of the CF conventions."""
    return IRRADIANCE if units in IRRADIANCE_SPELLINGS else units
