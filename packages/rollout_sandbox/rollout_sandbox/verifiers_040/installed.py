"""Which of the supported versions of verifiers is installed.

Supported are 0.4.0 and everything from 0.4.1.dev86 to before 0.5. A development release between them has some of the
changes and not others, and is refused.
"""

from importlib.metadata import version
from typing import Final

from packaging.version import Version

_FIRST_AFTER = Version("0.4.1.dev86")

_found: Final = Version(version("verifiers"))
if Version("0.4.0") < _found < _FIRST_AFTER:
    raise ImportError(
        f"verifiers {_found} is a development release between 0.4.0 and {_FIRST_AFTER}: install verifiers 0.4.0, or "
        f"{_FIRST_AFTER} or newer"
    )

AFTER_0_4_0: Final[bool] = _found >= _FIRST_AFTER
"""mypy is told the value (`always_true` or `always_false`), so that each branch is checked under its own version."""
