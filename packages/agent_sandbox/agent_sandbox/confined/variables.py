"""The environment variables of programs in the sandbox.

Invariant: nothing of the host's environment comes in but language, time zone and what the user names.
"""

import os
import sys
from collections.abc import Iterable, Mapping

_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
HOME = "/home/agent"


def _search_path() -> str:
    directories = list(_SYSTEM_PATH)
    if not any(os.access(f"{directory}/python3", os.X_OK) for directory in _SYSTEM_PATH):
        directories.append(f"{sys.base_prefix}/bin")
    return ":".join(directories)


def base_environment(allow: Iterable[str], host: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what every program in the sandbox sees before the task and the call add to it."""
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    env = {"PATH": _search_path(), "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "SHELL": shell}
    env["LANG"] = "C.UTF-8"
    let_in = {"LANG", "LANGUAGE", "TZ", *allow}
    env.update({name: value for name, value in host.items() if name in let_in or name.startswith("LC_")})
    return env
