"""The errors of this package.

ValueError
├── EmptyReference
└── Unparsable
ArithmeticError
├── Inexact
└── Undefined
Undecidable
"""


class EmptyReference(ValueError):
    """The task's reference answer states nothing."""


class Unparsable(ValueError):
    """A text is not one expression of the notation that is read here."""


class Inexact(ArithmeticError):
    """The value is not a rational number, or one that is too long."""


class Undefined(ArithmeticError):
    """The expression has no value, such as a division by zero."""


class Undecidable(Exception):
    """The value cannot be computed with bounded effort."""
