"""The worlds of the tests can be imported by their names, as those of a user are."""

import sys

from tests.support.user_home import PLUGINS

if str(PLUGINS) not in sys.path:
    sys.path.insert(0, str(PLUGINS))
