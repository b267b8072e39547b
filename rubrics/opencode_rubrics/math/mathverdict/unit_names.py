"""The names of units, and of the things that answers count."""

UNITS = {
    "cm": "cm|centimet(?:er|re)s?", "mm": "mm|millimet(?:er|re)s?", "km": "km|kilomet(?:er|re)s?", "dm": "dm",
    "m": "m|met(?:er|re)s?", "in": "in|inch(?:es)?", "ft": "ft|feet|foot", "yd": "yd|yards?", "mi": "mi|miles?",
    "nm": "nm|nanomet(?:er|re)s?", "kg": "kg|kilograms?|kilos?", "g": "g|grams?", "mg": "mg|milligrams?",
    "lb": "lbs?|pounds?", "oz": "oz|ounces?", "t": "tons?|tonnes?",
    "s": "s|secs?|seconds?", "ms": "ms|milliseconds?", "min": "min|mins|minutes?", "h": "h|hrs?|hours?",
    "day": "days?", "week": "weeks?", "month": "months?", "year": "years?|yrs?",
    "year old": "years? old|years of age",
    "l": "l|L|lit(?:er|re)s?", "ml": "ml|mL|millilit(?:er|re)s?", "gallon": "gal|gallons?", "quart": "qts?|quarts?",
    "pint": "pints?|pts?", "cup": "cups?", "tablespoon": "tablespoons?|tbsp", "teaspoon": "teaspoons?|tsp",
    "acre": "acres?", "hectare": "hectares?|ha",
    "mi/h": "mph", "km/h": "kmh|kph|kmph", "m/s2": r"m/s\^?\{?2\}?|met(?:er|re)s per second squared",
    "rpm": "rpm|revolutions per minute",
    "dollar": "dollars?|usd|USD|bucks", "cent": "cents?|¢", "euro": "euros?|eur|EUR|€", "pound": "gbp|GBP|£",
    "yen": "yen", "yuan": "yuan|rmb|RMB", "rupee": "rupees?|Rs", "ruble": "rubles?|roubles?",
    "degree": "degrees?|deg", "degreeC": "(?:degrees? )?(?:celsius|Celsius)|degrees? C",
    "degreeF": "(?:degrees? )?(?:fahrenheit|Fahrenheit)|degrees? F", "rad": "rad|radians?", "K": "K|kelvins?",
    "unit": "units?", "N": "N|newtons?", "kN": "kN|kilonewtons?", "J": "J|joules?", "kJ": "kJ|kilojoules?",
    "MJ": "MJ|megajoules?", "eV": "eV", "cal": "cal|calories?", "kcal": "kcal", "W": "W|watts?", "kW": "kW|kilowatts?",
    "MW": "MW|megawatts?", "kWh": "kWh", "V": "V|volts?", "kV": "kV|kilovolts?", "mV": "mV|millivolts?",
    "A": "A|amps?|amperes?", "mA": "mA|milliamps?", "ohm": "ohms?", "Hz": "Hz|hertz", "kHz": "kHz", "MHz": "MHz",
    "GHz": "GHz", "Pa": "Pa|pascals?", "kPa": "kPa|kilopascals?", "MPa": "MPa|megapascals?", "atm": "atm|atmospheres?",
    "mol": "mol|moles?", "T": "T|teslas?", "C": "coulombs?", "F": "farads?", "bit": "bits?", "byte": "bytes?",
    "KB": "KB|kB|kilobytes?", "MB": "MB|megabytes?", "GB": "GB|gigabytes?", "people": "people|persons?",
}  # fmt: skip
"""Patterns of the units, by the name that they have here."""
_COUNTED_NAMES = (
    "time way apple orange banana coin square point student book ball marble game ticket page boy girl child man "
    "woman men women adult member player team car bus seat chair table room house card dice die cube box bag bottle "
    "cookie candy cake pizza slice piece egg flower tree plant animal dog cat bird fish cow horse chicken sheep "
    "rabbit worker employee teacher guest visitor customer passenger friend letter word digit number integer solution "
    "root value pair triple triplet tuple set subset element term factor divisor multiple prime vertex vertices edge "
    "face side angle diagonal triangle rectangle circle line segment region path route step move turn round match "
    "arrangement permutation combination outcome possibility case pattern sequence string code color colour tile "
    "block brick stone stick pencil pen sticker stamp toy shirt hat shoe sock pant dress gift envelope key lock door "
    "window floor stair problem question mark vote signal lap trip train plane boat truck wheel bike bicycle row "
    "column cell handshake committee function polynomial zero intersection revolution rotation gram item person kid "
    "sandwich muffin donut doughnut cupcake pie lemon peach pear plum grape strawberry cherry mango carrot potato "
    "tomato bean seed leaf petal rose widget photo picture song movie video lattice "
    "class total work job way trip distance tank circle money class whole day hour year week town population "
    "molecule atom electron proton neutron particle photon ion"
)
COUNTED = frozenset(_COUNTED_NAMES.split(" "))
"""Things that an answer may say it counts, in the singular."""
