"""What recursion costs a rollout that does not use it: OpenCodeRLMEnv ÷ OpenCodeEnv, same prompts, one run.

Both play the same 3-turn prompt in confined local sandboxes, two at a time, against an instant scripted model; neither
makes a sub call. The environments alternate, round by round, each in a process of its own; interpreter start, imports
and one warm-up rollout are outside. CPU is user + system time of everything a contender started.

Run: uv run python benchmarks/rlm_overhead.py [--json] [--rollouts 6] [--rounds 3]
"""

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._contenders import cost_of, model_server, print_cost
from benchmarks._measure import Cost, adopt_orphans, machine, measured, report

GOALS = {"cpu": 1.05, "wall": 1.05}
STEPS: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "write", "arguments": {"filePath": "/tmp/hello.txt", "content": "hello\n"}}]},
    {"tool_calls": [{"name": "read", "arguments": {"filePath": "/tmp/hello.txt"}}]},
    {"text": "done"},
]
QUESTION = "Write hello into /tmp/hello.txt, read it back, and say done."
CONTENDERS = ("opencode-env", "opencode-rlm")


async def play(env_id: str, base_url: str, count: int, cost: Cost) -> None:
    """`count` rollouts, two at a time, after one that is not counted."""
    from verifiers.v1 import SamplingConfig
    from verifiers.v1.clients import EvalClientConfig, ModelContext
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tasks.jsonl"
        rows = [{"id": f"t{index}", "question": QUESTION, "answer": "done"} for index in range(count + 1)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # The tool `task` is off in one and on in the other by default; its description is not what is measured.
        harness = {"id": env_id, "disabled_tools": ["question", "task"]}
        fields = {"taskset": {"id": env_id, "dataset": str(path)}, "agent": {"harness": harness}}
        env = load_environment(resolve_env_config(fields))
        client = EvalClientConfig(base_url=base_url, api_key_var="NO_SUCH_KEY")
        context = ModelContext(model="scripted-model", client=client, sampling=SamplingConfig())
        async with env.serving():
            slots = [slot for task in env.taskset for slot in env.slots(task)]
            await env.run_slot(slots[0], context)
            gate = asyncio.Semaphore(2)
            with measured(cost):
                episodes = await asyncio.gather(*(env.run_slot(slot, context, gate) for slot in slots[1:]))
    if any(not episode.ok or episode.traces[0].num_turns != len(STEPS) for episode in episodes):
        raise SystemExit(f"a rollout of {env_id} did not play the whole script")


async def compare(rollouts: int, rounds: int) -> dict[str, list[Cost]]:
    """The cost of each contender in each round; the order changes from round to round."""
    costs: dict[str, list[Cost]] = {name: [] for name in CONTENDERS}
    async with model_server(STEPS) as base_url:
        for number in range(rounds):
            for name in CONTENDERS if number % 2 else reversed(CONTENDERS):
                arguments = ["--rollouts", str(rollouts), "--base-url", base_url]
                costs[name].append(await cost_of(__file__, name, *arguments))
    return costs


def total(costs: Sequence[Cost], what: str) -> float:
    """The sum of one kind of cost over the rounds."""
    return float(sum(getattr(cost, what) for cost in costs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rollouts", type=int, default=6, help="rollouts per round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--base-url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        adopt_orphans()
        logging.disable(logging.CRITICAL)
        cost = Cost()
        asyncio.run(play(options.contender, options.base_url, options.rollouts, cost))
        print_cost(cost)
        return
    costs = asyncio.run(compare(options.rollouts, options.rounds))
    ratios = {what: total(costs["opencode-rlm"], what) / total(costs["opencode-env"], what) for what in ("cpu", "wall")}
    runs = options.rollouts * options.rounds
    detail: dict[str, object] = {
        f"a rollout of {name}": f"{total(own, 'wall') / runs:.2f} s wall, {total(own, 'cpu') / runs:.2f} CPU-s"
        for name, own in costs.items()
    }
    detail |= machine()
    report("rlm_overhead", ratios, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
