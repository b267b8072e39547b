"""In the place of OpenCode, where the promise is the environment's and not the agent's: a program of a tenth second.

The cache of OpenCode's builds holds it under the real build's name, so that environments, servers and `vf-eval` find it
there; `tests/gateway/test_light_opencode.py` holds it against the real one.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from opencode_rubrics.cache import cache_root, make_once

REAL = {"OPENCODE_ENV_CACHE": str(cache_root())}
"""Variables of a run that plays real OpenCode all the same: in an image whose Python is too small, say."""
_PROGRAM = Path(__file__).with_name("light_opencode.py")
_FOR_A_SHELL = b"#!/bin/sh\n''':'\nexec python3 -I -S \"$0\" \"$@\"\n''' "
"""For Python it begins the docstring."""


def _cache(sends: int) -> Path:
    """A cache with the light program, made once for this machine."""
    program = _FOR_A_SHELL + _PROGRAM.read_bytes().replace(b"\nSENDS = 1\n", b"\nSENDS = %d\n" % sends)
    digest = hashlib.sha256(program).hexdigest()
    real = ensure_build(DEFAULT_VERSION, host_platform())
    cache = cache_root() / f"light-{digest[:16]}"

    def fill(directory: Path) -> None:
        (directory / "opencode").write_bytes(program)
        (directory / "opencode").chmod(0o755)
        os.link(real.directory / "rg", directory / "rg")
        (directory / "complete.json").write_text(json.dumps({"opencode": digest}))

    make_once(cache / real.directory.name, "complete.json", fill)
    return cache


@contextmanager
def light_opencode_in_place(sends: int = 1) -> Iterator[None]:
    """The light program is what environments of this process, and of those that it starts, run as OpenCode; it sends
    a call that fails for now so many times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENCODE_ENV_CACHE", str(_cache(sends)))
        yield
