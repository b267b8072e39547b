"""`python -m opencode_env.demo`: the sample tasks, real OpenCode, local sandboxes, and a scripted model; no account. Or
a model of the user's own.

It runs the installed `vf-eval` command as a user would.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from opencode_runs.console_command import say
from rollout_sandbox.confined import require_bubblewrap
from rollout_sandbox.told import without_credentials
from verifiers.v1.errors import RolloutError
from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import read_episodes

from opencode_env.samples import load_samples
from opencode_env.scripted_model import LABEL, MODEL_ID, SamplesPolicy, ScriptedModel

_EXAMPLES = """\
examples:
  python -m opencode_env.demo
  python -m opencode_env.demo --samples fix-median write-roman --rollouts 4 --success-rate 0.5 --concurrency 4
  python -m opencode_env.demo --model qwen3:4b --url http://127.0.0.1:11434/v1 -- --sampling.max-tokens 1024
"""

_OWN_MODEL = [
    *["--env.agent.harness.context-window", "auto", "--sampling.max-tokens", "2048", "--env.agent.max-turns", "20"],
    *["--client.api-key-var", "MODEL_API_KEY"],
]
"""Of a model that may be small and slow: answers fit into its window, no rollout goes on for long, and no key that is
meant for others is sent."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m opencode_env.demo",
        description="Evaluate the sample tasks with the real OpenCode in confined local sandboxes against a scripted "
        "model, with which nothing leaves this machine, or a model of your own.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [sample.id for sample in load_samples()]
    parser.add_argument("--model", help="name of your own model at --url (default: the scripted model)")
    parser.add_argument("--url", help="base URL of its OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--samples", nargs="+", choices=names, metavar="ID", help="samples to play (default: all)")
    parser.add_argument("--rollouts", "-r", type=int, default=1, help="rollouts per task (default: %(default)s)")
    parser.add_argument(
        "--concurrency", "-c", type=int, help="rollouts at once (default: 2 with the scripted model, else 1)"
    )
    parser.add_argument(
        "--success-rate", type=float, default=0.7, help="share that the scripted model solves (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of its outcomes (default: %(default)s)")
    parser.add_argument("--output-dir", type=Path, default=Path("outputs"), help="where runs go (default: %(default)s)")
    parser.add_argument("further", nargs="*", metavar="-- OPTION", help="further options of vf-eval, behind --")
    return parser


async def run_demo(options: argparse.Namespace) -> int:
    """Run the evaluation, and name the page that shows it; returns the process's exit code."""
    if options.model:
        say(f"model: {options.model}, at {without_credentials(options.url)}")
        code, run = await _evaluate(options, options.model, options.url, [*_OWN_MODEL, *options.further])
    else:
        async with ScriptedModel(SamplesPolicy(options.success_rate, options.seed)) as model:
            say(f"model: {LABEL}, at {model.base_url}")
            code, run = await _evaluate(options, MODEL_ID, model.base_url, options.further)
    if code != 0:
        say(f"vf-eval failed with exit code {code}: its messages are above")
        return code
    await _show(run)
    return 0 if all(episode.ok for episode in read_episodes(run, WireTrace)) else 1


async def _show(run: Path) -> None:
    """Write the page that shows the rollouts, and end with its path."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "opencode_runs.report", str(run))
    await process.wait()


async def _evaluate(options: argparse.Namespace, model: str, base_url: str, further: Sequence[str]) -> tuple[int, Path]:
    """Run `vf-eval opencode-env`, with what it says of each rollout and of the run; returns its exit code and the run
    directory."""
    name = f"demo-{os.getpid()}"
    argv = ["opencode-env", "-m", model, "--client.base-url", base_url, "--no-push", "--no-rich"]
    argv += ["-r", str(options.rollouts), "-c", str(options.concurrency or (1 if options.model else 2)), *further]
    argv += ["--select.include.ids", json.dumps(options.samples)] if options.samples else []
    argv += ["--output-dir", str(options.output_dir), "--run.name", name]
    say(without_credentials("running: vf-eval " + shlex.join(argv)))
    process = await asyncio.create_subprocess_exec(
        *_vf_eval(),
        *argv,
        stdout=asyncio.subprocess.DEVNULL,  # every trace as JSON; the run directory holds them too
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    last: deque[str] = deque(maxlen=40)
    async for line in process.stderr:
        text = line.decode(errors="replace").rstrip("\n")
        last.append(text)
        if "rollout finished" in text or not re.match(r"\d\d:\d\d:\d\d ", text):  # all else is verifiers' log
            say(text)
    code = await process.wait()
    if code != 0:
        say("\n".join(last))
    return code, options.output_dir / name


def _vf_eval() -> Sequence[str]:
    command = Path(sys.executable).with_name("vf-eval")
    found = str(command) if command.exists() else shutil.which("vf-eval")
    return [found] if found else [sys.executable, "-m", "verifiers.v1.cli.eval.main"]


def main() -> None:
    """Entry point; a missing prerequisite is one line."""
    parser = _parser()
    options = parser.parse_args()
    if bool(options.model) != bool(options.url):
        parser.error("your own model needs both: --model NAME and --url URL (make demo MODEL=NAME URL=URL)")
    try:
        require_bubblewrap()
    except RolloutError as error:
        raise SystemExit(str(error)) from error
    raise SystemExit(asyncio.run(run_demo(options)))


if __name__ == "__main__":
    main()
