"""Which packages are of this project, and a check that none of them comes from elsewhere."""

from importlib.util import find_spec
from pathlib import Path

OWN_PACKAGES = {
    "mathverdict": ("mathverdict",),
    "opencode-env": ("opencode_env",),
    "opencode-openenv": ("opencode_openenv",),
    "opencode-rlm": ("opencode_rlm",),
    "opencode-rubrics": ("opencode_rubrics",),
    "opencode-runs": ("opencode_runs",),
    "opencode-simulation": ("opencode_simulation",),
    "opencode-tasks": (
        *("opencode_cp", "opencode_deepdive", "opencode_math", "opencode_science", "opencode_search", "opencode_swe"),
        "opencode_tasks",
    ),
    "rollout-sandbox": ("rollout_sandbox",),
}
"""The import names of each distribution."""
MARK = "opencode-envs"
"""What the file `py.typed` of each package holds."""


def refuse_foreign_packages() -> None:
    """Look at every package of these names that an import would find, without importing it.

    Raises:
        ImportError: one is not of this project; the message names it, its place and what to do.
    """
    for distribution, packages in OWN_PACKAGES.items():
        for spec in filter(None, map(find_spec, packages)):
            marked = Path(spec.origin or "").with_name("py.typed")
            if not marked.is_file() or marked.read_text().strip() != MARK:
                raise ImportError(
                    f"{spec.name} in {spec.origin or list(spec.submodule_search_locations or ())} is another project's "
                    f"package, and opencode-env would import it: uninstall the distribution that brought it, and "
                    f"install {distribution} from the commit that opencode-env came from",
                    name=spec.name,
                )
