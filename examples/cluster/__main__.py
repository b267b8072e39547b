"""`python -m examples.cluster`: a Ray head and two nodes on this machine play the ten sample tasks, and end.

A scripted model stands in for a language model; `--model` and `--url` name one of your own, at an address that is not
`localhost`. What is behind `--` are further options of `vf-eval`. The exit code is 0 if every rollout was scored.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from opencode_env.scripted_model import MODEL_ID, SamplesPolicy, ScriptedModel
from opencode_runs.console_command import say
from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import TRACES_FILE, read_episodes

from examples.cluster.nodes import cluster_nodes, cluster_variables, end, own_address, until_ended

VF_EVAL = Path(sys.executable).with_name("vf-eval")
AT_ONCE = 4
"""Rollouts; half of them fill a worker, so that there are two, each on a node of its own."""


@asynccontextmanager
async def endpoint(url: str | None) -> AsyncIterator[str]:
    """The URL of the model; without one of the user's, of a scripted model where all nodes reach it."""
    if url is not None:
        yield url
        return
    async with ScriptedModel(SamplesPolicy(0.7), host=own_address()) as model:
        yield model.base_url


async def play(options: argparse.Namespace, further: Sequence[str]) -> int:
    """Play the samples; returns the exit code."""
    variables, name = cluster_variables(), f"cluster-{os.getpid()}"
    async with endpoint(options.url) as url, cluster_nodes(options.nodes, 1, variables) as address:
        say(f"a Ray head at {address} and {options.nodes} nodes are up")
        argv = [str(VF_EVAL), "opencode-env", "-m", options.model, "--client.base-url", url, "--no-push", "--no-rich"]
        argv += ["-c", str(AT_ONCE), "--output-dir", str(options.output_dir), "--run.name", name]
        argv += ["--env.cluster.type", "ray", "--env.cluster.address", address]
        argv += ["--env.cluster.per-worker", str(AT_ONCE // 2), *further]
        nothing, environment = asyncio.subprocess.DEVNULL, {**os.environ, **variables}
        evaluation = await asyncio.create_subprocess_exec(*argv, stdout=nothing, env=environment, process_group=0)
        try:
            code = await evaluation.wait()
        finally:
            await end(evaluation)
    run = options.output_dir / name
    return code or told(run) if (run / TRACES_FILE).exists() else code or 1


def told(run: Path) -> int:
    """Print each rollout of a run with its node; returns 1 if one failed, or there is none."""
    episodes = read_episodes(run, WireTrace)
    for episode in episodes:
        for trace in episode.traces:
            node = trace.info.get("agent", {}).get("node", "no node")
            say(f"{episode.task.data.id:20} {node:15} {'reward ' + str(trace.reward) if episode.ok else 'failed'}")
    say(f"{len(episodes)} rollouts in {run}")
    return 0 if episodes and all(episode.ok for episode in episodes) else 1


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--nodes", type=int, default=2, help="nodes beside the head (default: %(default)s)")
    add("--model", default=MODEL_ID, help="name of a model at --url (default: the scripted model)")
    add("--url", help="base URL of an endpoint that all nodes reach")
    add("--output-dir", type=Path, default=Path("outputs"), help="where the run goes (default: %(default)s)")
    words = sys.argv[1:]
    behind = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:behind])
    with contextlib.suppress(asyncio.CancelledError):
        return asyncio.run(until_ended(play(options, words[behind + 1 :])))
    return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
