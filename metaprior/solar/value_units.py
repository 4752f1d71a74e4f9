"""Units of the values of frames: one spelling for each, conversion to irradiance, and words for unknown ones."""

import re
import unicodedata
from typing import NamedTuple

IRRADIANCE = "W m-2"
OVERRIDE = "!"
"""Before units that a user gives: the values have these, whatever the file states."""
NO_UNITS = ("", "1")
"""Units of frames whose file states none; also those of numbers without a unit."""
UNITS_OF_THE_FRAMES = "units of the frames"

SPELLINGS = {
    "%": ("percent", "per cent", "pct"),
    "1": ("-", "none", "unitless", "dimensionless", "no unit", "no units"),
    "K": ("k", "kelvin", "degk", "deg k", "degree kelvin", "degrees kelvin"),
    "degC": ("degc", "deg c", "°c", "celsius", "degree celsius", "degrees celsius", "degree c", "degrees c"),
}
"""Other spellings, in small letters, of units that are not converted."""
ONE_SPELLING = {spelling: units for units, spellings in SPELLINGS.items() for spelling in spellings}

PREFIXES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6}
PREFIX_OF = {"milli": "m", "kilo": "k", "K": "k", "mega": "M", "Mega": "M"}
JOULES = {"W": 1.0, "J": 1.0, "Wh": 3600.0}
"""Joules (or watts) in one of each."""
PER_SQUARE_METRE = {"m": 1.0, "cm": 1e4}
FLUX = re.compile(
    r"(?P<prefix>milli|[kK]ilo|[mM]ega|[mkKM])?(?P<unit>[wW]att-?[hH]ours?|[wW]h|[wW]atts?|[wW]|[jJ]oules?|[jJ])"
    r"(?P<area>c?m)-2(?P<rate>s-1)?"
)


class Flux(NamedTuple):
    """Power or energy on an area: ``factor`` times a value is in W m-2 or, if ``per_step``, in J m-2."""

    units: str
    factor: float
    per_step: bool


def flux_of(units: str) -> Flux | None:
    """Return what units of power or energy on an area are in W m-2 or J m-2; None for all others."""
    found = FLUX.fullmatch(_compact(units))
    if found is None:
        return None
    prefix = PREFIX_OF.get(found["prefix"] or "", PREFIX_OF.get((found["prefix"] or "").lower(), found["prefix"] or ""))
    unit = "Wh" if found["unit"].lower().endswith(("h", "hour", "hours")) else found["unit"][0].upper()
    factor = PREFIXES[prefix] * JOULES[unit] * PER_SQUARE_METRE[found["area"]]
    if found["rate"] and unit == "J":
        return Flux(IRRADIANCE if factor == 1 else f"{prefix}J {found['area']}-2 s-1", factor, False)
    return None if found["rate"] else Flux(f"{prefix}{unit} {found['area']}-2", factor, unit != "W")


def one_spelling(units: str) -> str:
    """Return units as the CF conventions spell them (``W/m²``: ``W m-2``); those that are not known as they are."""
    flux = flux_of(units)
    return flux.units if flux else ONE_SPELLING.get(" ".join(units.lower().replace("_", " ").split()), units.strip())


def units_or_words(units: str) -> str:
    """Return the units, or words that can stand in their place after a number, in brackets and after "in"."""
    return UNITS_OF_THE_FRAMES if units.strip() in NO_UNITS else units


def units_text(units: str) -> str:
    """Return the units as a page shows them: irradiance in W/m², words for unknown units."""
    return "W/m²" if one_spelling(units) == IRRADIANCE else units_or_words(units)


def _compact(units: str) -> str:
    """Return units without spaces and signs of multiplication, in which every divisor has a negative power."""
    text = unicodedata.normalize("NFKC", units).replace("\u2212", "-")  # ² becomes 2, ⁻ the sign of minus
    text = re.sub(r"\bper\b", "/", text, flags=re.IGNORECASE)
    text = re.sub(r"sq(uare|\.)?[ _-]*(?=c?m)", "sq", text, flags=re.IGNORECASE)
    text = re.sub(r"(centi)?met(?:er|re)s?", lambda found: "cm" if found[1] else "m", text, flags=re.IGNORECASE)
    text = re.sub(r"sq(c?m)", r"\g<1>2", text)
    text = re.sub(r"[ *^·._()]|squared", lambda found: "2" if found[0] == "squared" else "", text)
    return re.sub(r"/(c?m2|s)(?=/|$)", lambda found: f"{found[1].rstrip('2')}-{2 if '2' in found[1] else 1}", text)
