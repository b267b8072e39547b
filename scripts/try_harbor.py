"""verifiers' own taskset `harbor` with our environment and harness, by hand; it needs Python 3.12 or newer.

It runs in an environment of its own: the locked verifiers with its extra `harbor`, and our packages from this
checkout. Without `--dataset` a task directory of the tests stands in for a package of Harbor's hub, put where the
taskset keeps what it has downloaded: one whose work directory begins empty and whose tests run where the agent worked,
which are those that the taskset can take without an image of their own. The scripted model plays its solution, so it is
to be scored 1. What follows `--` are arguments of `vf-eval`, such as a runtime that this machine has, and a model.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".cache" / "harbor-venv"
OURS = ("packages/rollout_sandbox", "packages/mathverdict", "rubrics", "environments/opencode_env")
TASK = ROOT / "tests" / "task_folders" / "tasks" / "quote-puzzle"
STAND_IN = "task-folders"


def run(*argv: str) -> None:
    """Run a program.

    Raises:
        SystemExit: it failed; its message is on standard error.
    """
    done = subprocess.run(argv, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"try_harbor: {' '.join(argv[:2])} failed with exit code {done.returncode}: see above")


def make_environment(python: str) -> None:
    """Everything installed that a run imports."""
    packages = {entry["name"]: entry["version"] for entry in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    run("uv", "venv", "--quiet", "--allow-existing", "--python", python, str(ENVIRONMENT))
    wanted = [f"verifiers[harbor]=={packages['verifiers']}", f"renderers=={packages['renderers']}"]
    ours = [word for place in OURS for word in ("--editable", place)]
    run("uv", "pip", "install", "--quiet", "--python", str(ENVIRONMENT), *wanted, *ours)


def stand_in(home: Path) -> list[str]:
    """A task directory where the taskset looks for a package that is downloaded already.

    Returns the scripted model's arguments: it plays the solution.
    """
    shutil.copytree(TASK, home / ".cache" / "harbor" / STAND_IN / TASK.name)
    arguments = {"command": (TASK / "solution" / "solve.sh").read_text(), "description": "the solution"}
    steps = [{"tool_calls": [{"name": "bash", "arguments": arguments}]}, {"text": "done"}]
    script = home / "script.json"
    script.write_text(json.dumps(steps))
    return ["--script", str(script)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="interpreter, by version or path (default: %(default)s)")
    parser.add_argument("--dataset", help="package of Harbor's hub (default: a task directory of the tests)")
    parser.add_argument("arguments", nargs="*", help="further arguments of vf-eval, after --")
    options = parser.parse_args()
    make_environment(options.python)
    programs = ENVIRONMENT / "bin"
    with tempfile.TemporaryDirectory(prefix="try-harbor-") as scratch:
        home = Path(scratch)
        env = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        plays: list[str] = []
        if options.dataset is None:
            plays = stand_in(home)
            env["HOME"] = str(home)
        port = home / "port"
        argv = [str(programs / "python"), "-m", "opencode_env.scripted_model", "--port-file", str(port), *plays]
        with subprocess.Popen(argv, env=env) as model:
            try:
                while not port.exists():
                    if model.poll() is not None:
                        raise SystemExit("try_harbor: the scripted model did not start: see above")
                    time.sleep(0.1)
                url = f"http://127.0.0.1:{port.read_text().strip()}/v1"
                words = ["@", "configs/eval/harbor.toml", "--no-push", "--client.base-url", url]
                words += ["--env.taskset.dataset", options.dataset or STAND_IN, *options.arguments]
                return subprocess.run([str(programs / "vf-eval"), *words], cwd=ROOT, env=env, check=False).returncode
            finally:
                model.terminate()


if __name__ == "__main__":
    sys.exit(main())
