"""Words in the names of columns, and which columns are weather that somebody forecasts, by whole words."""

import re
from typing import Literal

Kind = Literal["irradiance", "clouds", "other"]

IRRADIANCE = (
    *("gti", "poa", "tilted", "ghi", "globalstrahlung", "einstrahlung", "shortwave", "ssrd", "dswrf", "swdown"),
    *("irradiance", "irradiation", "insolation", "radiation", "strahlung"),
)
"""Words of irradiance, the best first: on the modules, horizontal, unspecified."""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_IRRADIANCE = _set(
    "dni dhi direct diffuse direkt diffus beam longwave long thermal infrared lw clear clearsky cs toa extra "
    "terrestrial extraterrestrial net uv index par active photosynthetically kt std sd flag qc quality uncert "
    "uncertainty error sum accum accumulated cumulative daily lag rear rpoa albedo reflected max min theoretical "
    "ineichen haurwitz temp temperature rate number id"
)
_CLOUDS = _set("clouds cloudiness cloudcover tcc bewoelkung bedeckungsgrad bedeckung")
_CLOUD_AMOUNT = _set("cover fraction amount amt area total")
_PART_OF_CLOUDS = _set("low mid medium high type flag fill base height ceiling top")
_OTHER = _set(
    "temp temperature temperatur t2m humidity feuchte luftfeuchte luftfeuchtigkeit rh rh2m dew dewpoint wind windspeed "
    "windgeschwindigkeit gust pressure luftdruck precip precipitation niederschlag rain rainfall snow snowfall "
    "visibility ceiling cloud clouds uv dni dhi irradiance radiation"
)
_NEVER_FORECAST = _set(
    "clear clearsky cs toa extra extraterrestrial theoretical max min flag qc quality error type uncert zenith azimuth "
    "altitude rear rpoa lag inv wr das cpu"
)
_AT_THE_PLANT = (
    *("modul", "panel", "cell", "zell", "inverter", "wechselrichter", "heatsink", "kuehlkoerper", "batter", "sensor"),
    *("pyranometer", "measured", "observed", "actual", "indoor", "tank", "water", "soil", "back"),
)
"""Begins of words for what is measured there, of which there is no forecast."""
_CALENDAR = _set("hour month year day doy season weekday zenith azimuth elevation altitude albedo clearsky")
_COMPOUNDS = ("temperatur", "temperature", "strahlung", "feuchte", "feuchtigkeit", "humidity")
"""Ends of words that count as words of their own."""


def words(name: str) -> list[str]:
    """Return the lower-case words of a column's name: "AC_Power [kW]" has ac, power and kw."""
    spaced = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", "_", str(name)).lower()
    for letter, plain in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss")):
        spaced = spaced.replace(letter, plain)
    return [word for word in re.split(r"[^0-9a-z%]+", spaced) if word]


def weather_kind(name: str) -> Kind | None:
    """Return what a column forecasts: irradiance, the cloud cover, other weather, or None."""
    given = words(name)
    own = {*given, *(end for end in _COMPOUNDS for word in given if word.endswith(end))}
    plain = {word.rstrip("0123456789") for word in own}
    if plain & _NEVER_FORECAST or any(word.startswith(_AT_THE_PLANT) for word in own):
        return None
    if own & set(IRRADIANCE) and not plain & _NOT_IRRADIANCE and not own & {"p10", "p90"}:
        return "irradiance"
    total = own & _CLOUDS or given == ["cloud"] or ("cloud" in own and own & _CLOUD_AMOUNT)
    if total and not own & _PART_OF_CLOUDS:
        return "clouds"
    return "other" if own & _OTHER and not own & {"sum", "accumulated", "daily"} else None


def is_weather_or_calendar(name: str) -> bool:
    """Return whether a column is certainly not the power of a plant: weather, measured or forecast, or the calendar."""
    given = words(name)
    plain = {word.rstrip("0123456789") for word in given}
    compound = any(word.endswith(_COMPOUNDS) for word in given) or "t" in given[:1]
    return compound or bool(plain & {*IRRADIANCE, *_CLOUDS, *_OTHER, *_CALENDAR, "poa", "ssrdc", "dni", "dhi"})
