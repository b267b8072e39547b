"""A long rollout through a window of 16,000 tokens ÷ the same in one window, under a training client.

  trained_once   tokens that train ÷ tokens that the engine sampled, through the small window
  longest        tokens of its longest sample ÷ the window
  trained        tokens that train, small window ÷ one window: more than 1 by the summaries
  sample_tokens  tokens of all samples, the same
  wall, cpu      of the rollout, the same; CPU with OpenCode and the sandbox
  process_cpu    CPU of the evaluation process alone, the same
  memory         what the rollout adds to the most memory of the evaluation process, the same

Each turn is one quick command with a result of some 300 tokens. The real OpenCode works in a confined local sandbox,
with a short system prompt and its tools for files, so that the small window has room beside them. The engine is
scripted, takes no time, and is outside of what is measured. Seconds added by a compaction: from the last answer of a
section to the first call of the next, less the median time between two calls. Run:
uv run python benchmarks/compaction.py [--json] [--turns 200]
"""

import argparse
import asyncio
import json
import logging
import re
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_env.cli_agent.traces import AnyTrace
from opencode_runs.trainable.samples import training_samples

from benchmarks._child import process
from benchmarks._dataset_filter import memory
from benchmarks._hosted import hosted_rows
from benchmarks._measure import Cost, adopt_orphans, machine, measured, report
from tests.support.families import Qwen3, save_tokenizer
from tests.support.token_engine import Says, TokenEngine
from tests.training.hostile import bash
from tests.training.trained import train_client

Figures = dict[str, float]

GOALS = {"trained_once": 1.0, "longest": 1.0}
DEFAULT = 200
"""Turns."""
SMALL, ONE = 16_000, 1_000_000
RESERVE = 3_000
FAMILY = Qwen3(thinks=True)
SHORT, LONG = "Count a little.", "Count the numbers, some of each thousand."
DISABLED = ["question", "task", "webfetch", "websearch", "codesearch", "skill", "todowrite"]
SUMMARY = "Numbers were counted, and all of them were there. " * 10


def says(turns: int, prompt: str) -> Says:
    """The next of so many turns, the last of which ends the rollout, by what the prompt says of those before."""
    done = max(map(int, re.findall(r"seq (\d+)000 ", prompt)), default=0)
    if "You are a context summarization agent" in prompt:
        return Says(FAMILY.answer(f"{SUMMARY}The last was seq {done}000 .", reasoning="What was it?"))
    if done + 1 >= (3 if SHORT in prompt else turns):
        return Says(FAMILY.answer("Done.", reasoning="Enough."))
    command = f"seq {done + 1}000 {done + 1}060"
    return Says(FAMILY.answer("Now.", bash(FAMILY, command), reasoning="The next numbers are to be counted. " * 2))


async def serve(tokenizer: Path, turns: int) -> None:
    """Serve the engine, say its URL, and end with standard input."""
    async with TokenEngine(tokenizer, FAMILY, lambda _, prompt: says(turns, prompt)).serving() as url:
        print(json.dumps(url), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def play(tokenizer: Path, turns: int, window: int) -> Figures:
    """One rollout through a window, behind a short one: what it cost this process, and what it left."""
    harness = {
        "id": "opencode-env",
        "disable_compaction": False,
        "context_window": window,
        "window_reserve": RESERVE,
        "disabled_tools": DISABLED,
        "system_prompt": "You are a coding agent.",
        "system_prompt_mode": "replace",
    }
    rows = [{"id": text, "question": text, "answer": "Done."} for text in (SHORT, LONG)]
    async with child("serve", tokenizer, turns, window) as engine:
        client = train_client(await said(engine), FAMILY, tokenizer)
        fields = {"agent": {"harness": harness, "max_turns": 2 * turns}}
        async with hosted_rows(client.base_url, rows, fields, client) as hosted:
            await hosted.run(hosted.slots[:1], 1)
            before, own, cost = memory("VmRSS"), time.process_time(), Cost()
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
            with measured(cost):
                (episode,) = await hosted.run(hosted.slots[1:], 1)
            own = time.process_time() - own
    figures = {"wall": cost.wall, "cpu": cost.cpu, "process_cpu": own, "memory": memory("VmHWM") - before}
    return {**figures, **left(episode.traces[0])}


def left(trace: AnyTrace) -> Figures:
    """Tokens of a trace, and seconds at its compactions."""
    samples = training_samples(trace)
    history = trace.info.get("history", {"summaries": [], "forks": 0})
    summaries = {one["node"] for one in history["summaries"]}
    if history["forks"] or trace.stop_condition != "agent_completed" or any(call.error for call in trace.calls):
        raise SystemExit(f"the rollout did not end as it should: {trace.stop_condition}, {history}")
    plain = [later.time.start - call.time.end for call, later in pairwise(trace.calls) if later.node not in summaries]
    compacting = [
        behind.time.start - before.time.end
        for before, call, behind in zip(trace.calls, trace.calls[1:], trace.calls[2:], strict=False)
        if call.node in summaries
    ]
    return {
        "answers": trace.num_turns,
        "compactions": sum(one["used"] for one in history["summaries"]),
        "added": statistics.median(compacting) - statistics.median(plain) if compacting else 0.0,
        "sampled": sum(call.usage.completion_tokens for call in trace.calls if call.usage),
        "trained": sum(sample.trained for sample in samples),
        "sample_tokens": sum(len(sample.token_ids) for sample in samples),
        "longest": max(len(sample.token_ids) for sample in samples),
    }


def child(role: str, tokenizer: Path, turns: int, window: int) -> Any:
    """This program once more, as the engine or as the evaluation process of one rollout."""
    return process(__file__, "--role", role, str(tokenizer), "--turns", str(turns), "--window", str(window))


async def said(started: asyncio.subprocess.Process) -> Any:
    """What a child says in its first line."""
    assert started.stdout is not None
    line = await started.stdout.readline()
    if not line:
        raise SystemExit(f"a process of the benchmark failed with exit code {await started.wait()}")
    return json.loads(line)


async def compare(tokenizer: Path, turns: int) -> tuple[dict[str, float], dict[str, object]]:
    """The ratios, and what they come from."""
    found: list[Figures] = []
    for window in (SMALL, ONE):
        async with child("play", tokenizer, turns, window) as evaluation:
            found.append(await said(evaluation))
    small, one = found
    if not small["compactions"] or one["compactions"]:
        raise SystemExit(
            f"compactions: {small['compactions']:.0f} in the small window, {one['compactions']:.0f} in one"
        )
    both = ("trained", "sample_tokens", "wall", "cpu", "process_cpu", "memory")
    ratios = {"trained_once": small["trained"] / small["sampled"], "longest": small["longest"] / SMALL}
    return ratios | {name: small[name] / one[name] for name in both}, {
        "turns": turns,
        "seconds added by a compaction": round(small["added"], 3),
        f"window of {SMALL}, reserve {RESERVE}": described(small),
        "one window": described(one),
        **machine(),
    }


def described(figures: Figures) -> str:
    """The figures of a rollout in words."""
    return (
        "{answers:.0f} answers, {compactions:.0f} compactions, {sampled:.0f} tokens sampled, {trained:.0f} trained, "
        "{sample_tokens:.0f} in samples, longest {longest:.0f}; wall {wall:.1f} s, CPU {cpu:.1f} s, "
        "of the process {process_cpu:.1f} s, memory +{memory:.1f} MB"
    ).format(**figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--turns", type=int, default=DEFAULT, help="of each rollout (default: %(default)s)")
    parser.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--window", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.role is None:
        turns = options.turns
        with tempfile.TemporaryDirectory() as directory:
            ratios, detail = asyncio.run(compare(save_tokenizer(Path(directory)), turns))
        report("compaction", ratios, GOALS, detail, as_json=options.json)
    elif options.role[0] == "serve":
        asyncio.run(serve(Path(options.role[1]), options.turns))
    else:
        adopt_orphans()
        print(json.dumps(asyncio.run(play(Path(options.role[1]), options.turns, options.window))), flush=True)


if __name__ == "__main__":
    main()
