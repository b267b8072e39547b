"""Runs of `vf-eval` against a real engine, and what their traces say against what the engine said."""

import base64
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from opencode_env.agents.opencode.config import BUILT_IN_TOOLS

from tests.engines.recorder import GENERATE, Exchange, Narrow, Recorder
from tests.support.recorded import Answer, save
from tests.support.rows import write_rows
from tests.support.token_engine import Call
from tests.support.user_home import FinishedEvaluation, UserHome
from tests.training.hostile import PIXEL

ROUNDED = 0.5e-4 + 1e-9
"""How far a saved log-probability may be from the engine's: verifiers keeps four decimals."""
PICTURE = f"mkdir -p /app; echo {base64.b64encode(PIXEL).decode()} | base64 -d > /app/pixel.png"
"""Makes a picture in the sandbox."""
FIRST = "row first: " + "word " * 40_000
"""A prompt that is longer than the window."""
LONGEST = 3600.0
"""Seconds of a run on a machine that does other work beside it."""
ANSWER = 96
"""Tokens of an answer, at most."""


@dataclass(frozen=True)
class Engine:
    """A real engine that runs."""

    version: str
    url: str
    model: Path
    tokenizer: Any


@dataclass(frozen=True)
class Run:
    """One `vf-eval`, and all that went to the engine and came back."""

    finished: FinishedEvaluation
    recorder: Recorder

    def traces(self, name: str) -> list[Any]:
        """The traces of a task's episodes."""
        return [trace for one in self.finished.episodes if one.task.data.id == name for trace in one.traces]


def row(name: str, **fields: Any) -> dict[str, Any]:
    """A task that is solved by whatever is done, and whose prompt names it."""
    return {"id": name, "question": f"row {name}: do it.", "verify": ["true"], "agent_timeout": LONGEST, **fields}


def training(engine: Engine) -> list[str]:
    """The options of a training client."""
    client = [
        "--client.type",
        "train",
        "--client.renderer.name",
        "qwen3",
        "--client.renderer.thinking-retention",
        "all",
    ]
    return [*client, "--client.renderer-model-name", str(engine.model)]


async def play(
    engine: Engine,
    home: UserHome,
    name: str,
    rows: Sequence[Mapping[str, Any]] | Path,
    narrow: Narrow,
    *options: str,
    env: str = "opencode-env",
    tools: Sequence[str] = ("bash",),
    limit: int | None = ANSWER,
) -> Run:
    """Play rows, or a folder of kept turns, by an agent that has these tools and a short prompt; `limit`: of answers,
    in tokens."""
    recorder = Recorder(engine.url, engine.tokenizer, narrow)
    dataset = rows if isinstance(rows, Path) else write_rows(home.root / f"{name}.jsonl", rows)
    left_out = [tool for tool in BUILT_IN_TOOLS if tool not in tools]
    settings = home.root / f"{name}.toml"
    settings.write_text(
        f"[env.agent.harness]\ndisabled_tools = {left_out}\n"
        'system_prompt = "You use tools."\nsystem_prompt_mode = "replace"\n'
    )
    arguments = [env, "@", str(settings), "--env.taskset.dataset", str(dataset), "--sampling.temperature", "1.0"]
    arguments += [] if limit is None else ["--sampling.max-tokens", str(limit)]
    async with recorder.serving() as url, home.running(name, url, *arguments, *options) as evaluation:
        finished = await evaluation.finish(LONGEST)
    assert finished.exit_code == 0, finished.log[-3000:]
    return Run(finished, recorder)


def record(engine: Engine, **scenes: Sequence[Exchange]) -> None:
    """Keep what the engine answered in these scenes for `make test`, where the variable `RECORD` is set; its model's
    folder, which is this machine's, goes by another name."""
    if os.environ.get("RECORD"):
        for scene, exchanges in scenes.items():
            answers = [Answer(one.status, one.content_type, _named(one.pieces, engine.model)) for one in exchanges]
            save(f"vllm-{engine.version}", scene, answers)


def _named(pieces: Sequence[bytes], model: Path) -> list[bytes]:
    return [piece.replace(str(model).encode(), b"/model") for piece in pieces]


@dataclass(frozen=True)
class Compared:
    """How many turns of traces are what the engine saw and sampled."""

    turns: int
    """Answered calls of the engine."""
    tokens: int
    """Sampled tokens of them."""
    ids: int
    masks: int
    logprobs: int
    """Turns whose prompt and sampled ids, marks of what trains, and log-probabilities are the engine's."""
    branches: int

    @property
    def exact(self) -> bool:
        return bool(self.turns) and self.turns == self.ids == self.masks == self.logprobs

    def __str__(self) -> str:
        shares = f"ids {self.ids}/{self.turns}, masks {self.masks}/{self.turns}, logprobs {self.logprobs}/{self.turns}"
        return f"{self.turns} turns, {self.tokens} sampled tokens in {self.branches} branches: {shares}"


def compare(traces: Sequence[Any], calls: Sequence[Call]) -> Compared:
    """Hold traces against the calls; a turn counts as exact in the branch that holds it as the engine saw it."""
    found: Counter[str] = Counter()
    branches = [branch for trace in traces for branch in trace.branches if len(branch.token_ids)]
    held = [(list(one.token_ids), list(one.sampled_mask), list(one.logprobs)) for one in branches]
    for call in calls:
        start, end = len(call.prompt), len(call.sequence)
        same = [one for one in held if one[0][:end] == call.sequence]
        found["ids"] += bool(same)
        found["masks"] += any(all(mask[start:end]) for _, mask, _ in same)
        found["logprobs"] += any(_near(logprobs[start:end], call.logprobs) for _, _, logprobs in same)
    trained = sum(sum(node.mask) for trace in traces for node in trace.nodes)
    sampled = sum(len(call.completion) for call in calls)
    assert trained == sampled, f"{trained} tokens train, and the engine sampled {sampled}"
    return Compared(len(calls), sampled, found["ids"], found["masks"], found["logprobs"], len(branches))


def _near(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return len(ours) == len(theirs) and all(
        abs(one - other) <= ROUNDED + 1e-6 * abs(other) for one, other in zip(ours, theirs, strict=True)
    )


async def forced(engine: Engine, call: Call) -> list[float]:
    """What the engine says of an answer that it is given: the log-probabilities of its tokens as a prompt."""
    sampling = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
    body = {"model": call.model, "token_ids": call.sequence, "sampling_params": sampling}
    async with httpx.AsyncClient(timeout=600) as client:
        answer = await client.post(engine.url.removesuffix("/v1") + GENERATE, json=body)
    answer.raise_for_status()
    found = answer.json()["prompt_logprobs"][len(call.prompt) :]
    return [one[str(token)]["logprob"] for one, token in zip(found, call.completion, strict=True)]
