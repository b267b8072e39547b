"""What packages offer is seen by `help`, also where it is imported on first use."""

import pydoc
from importlib import import_module

import pytest

PACKAGES = [
    *("rollout_sandbox", "opencode_env", "opencode_rlm", "opencode_simulation", "opencode_openenv"),
    "opencode_openenv.tbench2",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_help_shows_every_public_name(name: str) -> None:
    package = import_module(name)
    assert set(package.__all__) <= set(dir(package))
    shown = pydoc.plain(pydoc.render_doc(package))
    assert [public for public in package.__all__ if f" {public}" not in shown.partition("FILE")[0]] == []
    described = shown.partition("\nDATA\n")[0]
    classes = [public for public in package.__all__ if isinstance(getattr(package, public), type)]
    assert [public for public in classes if f"class {public}" not in described] == []
