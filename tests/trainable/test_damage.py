"""Every damage of one field of a sound trace is found, or its field stands here with the reason why it is harmless.

`make test-whole` damages twenty places of each field.
"""

import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opencode_runs.errors import BadInputError
from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.inspection import inspect
from verifiers.v1.utils.trace_store import write_episode

from tests.rlm.role_server import SUB, Rollout, role_server
from tests.rlm.test_training import END, Engine, running, tokenizer
from tests.support.families import loaded_tokenizer
from tests.support.sizes import size
from tests.trainable.damage import Damage, damaged, damages
from tests.trainable.recorded import episode_of, grow, train_client

__all__ = ["tokenizer"]

SEEDS = size(1, 20)

Lines = list[dict[str, Any]]


class Sampling(Engine):
    """An engine whose answers have lengths and logprobs of their own."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self._chance = random.Random(0)

    async def generate(self, request: web.Request) -> web.Response:
        """One completion."""
        prompt = json.loads(await request.text())["token_ids"]
        completion = [*self._chance.choices(range(60, 90), k=2 + len(self.sequences)), self.end]
        self.sequences.append([*prompt, *completion])
        logprobs = [{"token": f"token_id:{token}", "logprob": -self._chance.uniform(0.1, 5)} for token in completion]
        choice = {"index": 0, "token_ids": completion, "logprobs": {"content": logprobs}, "finish_reason": "stop"}
        return web.json_response({"request_id": "r", "choices": [choice]})


async def rewrite(rollout: Rollout, question: str, turns: int) -> None:
    """A conversation whose system message says something else at each turn."""
    said: list[dict[str, str]] = []
    for turn in range(turns):
        system = {"role": "system", "content": f"Turn {turn}."}
        answer = await rollout.ask([system, {"role": "user", "content": question}, *said])
        said += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": f"go on {turn}"}]


async def play(rollout: Rollout, forked: bool) -> None:
    """A rollout with sub calls: one conversation that grows, one question that is asked twice."""
    await (rewrite if forked else grow)(rollout, "main question", 3)
    await grow(rollout, "sub question", 2, SUB)
    for _ in range(2):
        await grow(rollout, "asked twice", 1, SUB)


@asynccontextmanager
async def clients(kind: str, tokenizer: Path) -> AsyncIterator[Any]:
    """The client of a kind of run."""
    if kind == "chat":
        yield None
        return
    async with running(Sampling(loaded_tokenizer(tokenizer).convert_tokens_to_ids(END))) as url:
        yield train_client(url, tokenizer)


async def sound(kind: str, tokenizer: Path, folder: Path) -> Lines:
    """The episodes of a group of three; the last one failed."""
    async with clients(kind, tokenizer) as client:
        for reward in (0.0, 1.0, None):
            async with role_server(client=client) as server, server.rollout() as rollout:
                await play(rollout, forked=kind == "forked")
            write_episode(folder, episode_of(rollout, reward))
    return [json.loads(line) for line in (folder / "traces.jsonl").read_bytes().splitlines()]


ACCEPTED = {"training": frozenset[Flaw](), "forked": frozenset({Flaw.FORKS}), "chat": frozenset({Flaw.NO_TOKENS})}


def is_found(folder: Path, lines: Lines, kind: str) -> bool:
    """Whether something is found that is not found in the sound run."""
    (folder / "traces.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    try:
        report = inspect([folder], allowed=ACCEPTED[kind])
    except BadInputError:
        return True
    return any(finding.fails for finding in report.findings)


OWN_GROUP = "the rollout is then in a group of its own, which is said to lack rollouts"
DEFAULT = "what verifiers reads where it is missing is what stood there"
CONTEXT = "how and where it ran: no trainer reads it"
DERIVED = "counted again from calls and messages wherever it is read"
TEXT = "a trainer takes tokens, and what a message says does not change them"
TIME = "when it was; only two of one moment are copies"
ENDING = "how it ended: it is scored and trained all the same"
ANY = "any value may stand there, and nothing else on the trace knows better"
NAMED = "a name; nothing but copies depends on it"
EVALUATED = "of an evaluation nothing trains"

HARMLESS = {
    r"(env|env\.id|task\.key)": OWN_GROUP,
    r"id": NAMED,
    r"traces": "one trace less: an episode may have any; that of sub calls is missed by its main trace",
    r"traces\[\]": "as with `traces`, and their order says nothing",
    r"(traces\[\]\.)?task\.type": CONTEXT,
    r"(traces\[\]\.)?task\.data\.idx": "rows are numbered anew when a run is resumed",
    r"(traces\[\]\.)?(is_timeout|is_completed)": ENDING,
    r"traces\[\]\.stop_condition": ENDING,
    r"(traces\[\]\.)?num_(input|output|total)_tokens": DERIVED,
    r"traces\[\]\.id": NAMED,
    r"traces\[\]\.agent\.name": "a seat is called what its environment calls it",
    r"traces\[\]\.agent\.trainable": DEFAULT,
    r"traces\[\]\.agent\.config\.(client|deployment|harness|runtime|scoring|timeout|network_notice)(\..*)?": CONTEXT,
    r"traces\[\]\.agent\.config\.retries(\..*)?": "read only to know whether errors may be those of earlier tries",
    r"traces\[\]\.verifiers(\..*)?": CONTEXT,
    r"traces\[\]\.timing(\..*)?": TIME,
    r"traces\[\]\.calls\[\]\.time(\..*)?": TIME,
    r"traces\[\]\.(answer|request)\.timestamp": TIME,
    r"traces\[\]\.calls\[\]": "the order of calls says nothing",
    r"traces\[\]\.calls\[\]\.(endpoint|finish_reason)": CONTEXT,
    r"traces\[\]\.(metrics|info)(\..*)?": "figures and notes about the trace; forks are found in its messages too",
    r"traces\[\]\.(extra_usage|request_rewrites|response_rewrites|tools|mm_token_type_id_map)": CONTEXT,
    r"traces\[\]\.(answer|request)\.semantic_parents": CONTEXT,
    r"traces\[\]\.(answer|request)\.message(\.content|\.role)?": TEXT,
    r"traces\[\]\.rewards\.solved\.score": ANY,
    r"traces\[\]\.rewards\.solved\.weight": DEFAULT,
    r"traces\[\]\.request\.sampled": DEFAULT,
}
"""Fields of which not every damage is found, as patterns, each with the reason why that does no harm."""

TOKENS = {
    r"traces\[\]\.(answer|request)\.token_ids\[\]": "which token stands for which text only a tokenizer knows",
    r"traces\[\]\.answer\.logprobs\[\]": ANY,
}
HARMLESS_IN = {
    "chat": {r"traces\[\]\.calls\[\]\.(usage(\..*)?|node)": EVALUATED, r"traces\[\]\.request\.parent": EVALUATED},
    "forked": TOKENS,
    "training": TOKENS,
}
"""More of them, by kind of run."""

STILL_FOUND = {
    r"drop|null|type|double|cut": r"traces\[\]\.(answer|request)\.token_ids\[\]|traces\[\]\.answer\.logprobs\[\]",
    r"null|type": r"traces\[\]\.rewards\.solved\.score",
    r"type|other|null": r"traces\[\]\.(agent\.trainable|rewards\.solved\.weight|request\.sampled)",
    r"double": r"traces",
}
"""Damages of those fields that are found all the same: by kind, the fields."""


def stands_there(damage: Damage, kind: str) -> bool:
    """Whether the damage is one of those that do no harm."""
    if any(re.fullmatch(how, damage.kind) and re.fullmatch(field, damage.field) for how, field in STILL_FOUND.items()):
        return False
    return any(re.fullmatch(field, damage.field) for field in (*HARMLESS, *HARMLESS_IN[kind]))


@pytest.mark.parametrize("kind", ACCEPTED)
async def test_every_damage_of_one_field_is_found_or_known_to_be_harmless(
    kind: str, tokenizer: Path, tmp_path: Path
) -> None:
    lines = await sound(kind, tokenizer, tmp_path)
    assert not is_found(tmp_path, lines, kind)
    missed, fields = [], set()
    for seed in range(SEEDS):
        for damage in damages(lines[1], random.Random(seed)):
            fields.add(damage.field)
            if stands_there(damage, kind):
                continue
            if not is_found(tmp_path, [lines[0], damaged(lines[1], damage), lines[2]], kind):
                missed.append(f"{damage.name} at {damage.path}")
    assert missed == [], "\n".join(missed)
    stale = [name for name in (*HARMLESS, *HARMLESS_IN[kind]) if not any(re.fullmatch(name, field) for field in fields)]
    assert stale == [], "patterns of fields that no trace has"


async def test_a_failed_rollout_cannot_be_made_to_train(tokenizer: Path, tmp_path: Path) -> None:
    lines = await sound("training", tokenizer, tmp_path)
    standing = [damage for damage in damages(lines[2], random.Random(0)) if damage.field in ("ok", "traces[].ok")]
    assert {damage.kind for damage in standing} >= {"null", "type", "other"}
    missed = [
        damage.name for damage in standing
        if damage.kind != "drop" and not is_found(tmp_path, [*lines[:2], damaged(lines[2], damage)], "training")
    ]  # fmt: skip
    assert missed == []
