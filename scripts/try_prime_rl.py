"""prime-rl's own code over our configurations, environments and traces, on CPU: `--prime-rl` names its checkout.

It runs in an environment of its own: prime-rl and its configuration classes from the checkout, our packages from this
one with the locked verifiers, and of prime-rl's requirements those that need no GPU. Two things stand in for what is
not there: `Branch.multi_modal_data`, which verifiers 0.4 no longer has (`prime_rl_trial/learning.py`), and, unless
torch is installed there, the few functions of it that the orchestrator uses (`prime_rl_trial/stand_ins`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".cache" / "prime-rl-venv"
OURS = (
    "packages/rollout_sandbox",
    "packages/mathverdict",
    "rubrics",
    "environments/opencode_env",
    "environments/opencode_rlm",
    "environments/opencode_simulation",
    "environments/opencode_tasks",
)
AS_LOCKED = ("wandb", "wandb-workspaces", "aiolimiter", "msgspec", "setproctitle", "uvloop")
"""Of these prime-rl's lock says the version."""
OTHERS = (
    "beartype",
    "jaxtyping",
    "loguru",
    "orjson",
    "pandas",
    "prime",
    "prometheus-client",
    "psutil",
    "tomli",
    "tomli-w",
)
_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def uv(*arguments: str) -> None:
    """Run uv.

    Raises:
        SystemExit: it failed; its message is on standard error.
    """
    done = subprocess.run(["uv", *arguments], cwd=ROOT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"try_prime_rl: uv {arguments[0]} failed with exit code {done.returncode}: see above")


def locked(lock: Path, names: tuple[str, ...]) -> list[str]:
    """Requirements that name the versions of a uv.lock."""
    packages = tomllib.loads(lock.read_text())["package"]
    return [f"{found['name']}=={found['version']}" for found in packages if found["name"] in names]


def make_environment(checkout: Path, python: str) -> None:
    """Everything installed that the trial imports."""
    verifiers = locked(ROOT / "uv.lock", ("verifiers", "renderers", "prime-pydantic-config", "ray"))
    theirs = locked(checkout / "uv.lock", AS_LOCKED)
    uv("venv", "--quiet", "--allow-existing", "--python", python, str(ENVIRONMENT))
    install = ["pip", "install", "--quiet", "--python", str(ENVIRONMENT)]
    uv(*install, *verifiers, *theirs, *OTHERS, *(word for place in OURS for word in ("--editable", place)))
    code = (str(checkout), str(checkout / "packages" / "prime-rl-configs"))
    uv(*install, "--no-deps", *(word for place in code for word in ("--editable", place)))


def has_torch() -> bool:
    """Whether torch is installed there."""
    return subprocess.run([ENVIRONMENT / "bin" / "python", "-c", _HAS_TORCH], check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prime-rl", type=Path, required=True, metavar="PATH", help="checkout of prime-rl")
    parser.add_argument("--python", default="3.12", help="interpreter that prime-rl takes (default: %(default)s)")
    parser.add_argument("--work", type=Path, help="where runs and logs go (default: a new temporary directory)")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="of files (no rollout), step, recursion, sections, turns, faults, stale, evals, cluster (default: all)",
    )
    options = parser.parse_args()
    make_environment(options.prime_rl.resolve(), options.python)
    programs = ENVIRONMENT / "bin"
    path = [str(ROOT)]
    if not has_torch():
        path.append(str(ROOT / "scripts" / "prime_rl_trial" / "stand_ins"))
    work = options.work or Path(tempfile.mkdtemp(prefix="prime-rl-trial-"))
    print(f"try_prime_rl: runs and logs are in {work}", flush=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    argv = [str(programs / "python"), "-m", "scripts.prime_rl_trial", *options.parts, "--work", str(work.resolve())]
    return subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
