"""A branch under a training client: the tokens of the trunk before it, masked, and its own, exactly as sampled.

The light program plays, OpenCode in `make test-whole`; what is rewritten in its store: `test_hostile.py`.
"""

from pathlib import Path

import pytest
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.kept_turns.continued import Continued
from opencode_rlm.env import OpenCodeRLMEnv, OpenCodeRLMEnvConfig
from opencode_runs.turns.kept import kept_turns

from tests.support.families import GLM, Family, Qwen3
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.sizes import size
from tests.support.token_engine import Call, Says, TokenEngine
from tests.training.trained import Lines, assert_exact, train_client
from tests.turns.playing import config_of, episodes

pytestmark = pytest.mark.usefixtures("light_but_in_whole")

FAMILIES: dict[str, Family] = {"qwen3": Qwen3(True), "qwen3 without thinking": Qwen3(False), "glm": GLM(True)}
PLAYED = size(["qwen3"], [*FAMILIES])


def says(family: Family, *commands: str) -> list[Says]:
    """Turns that run commands."""
    calls = [family.call("bash", {"command": command, "description": "d"}) for command in commands]
    return [Says(family.answer("", call, reasoning="Hm.")) for call in calls]


@pytest.mark.parametrize("family", [FAMILIES[name] for name in PLAYED], ids=PLAYED)
async def test_trunk_and_branches_train_each_sampled_token_once(
    tokenizer: Path, tmp_path: Path, family: Family
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", "question": "Go.", "answer": "x"}])
    trunk_engine = TokenEngine(tokenizer, family, Lines(family, says(family, "echo 1 >a", "cat a", "ls"), {}))
    async with trunk_engine.serving() as url:
        client = train_client(url, family, tokenizer)
        (episode,) = await episodes(config_of(rows, tmp_path / "kept"), client, MAIN_MODEL)
    (trunk,) = episode.traces
    assert trunk.ok, trunk.errors
    asked = trunk_engine.of(MAIN_MODEL)
    assert_exact(trunk, trunk.branches[0], asked)

    (turn,) = [one for one in kept_turns(tmp_path / "kept") if one.turn == 3]
    engine = TokenEngine(tokenizer, family, Lines(family, says(family, "echo other; cat a"), {}))
    async with engine.serving() as url:
        client = train_client(url, family, tokenizer)
        (episode,) = await episodes(config_of(turn.place), client, MAIN_MODEL)
    (branch,) = episode.traces
    assert branch.ok, branch.errors
    calls = engine.of(MAIN_MODEL)
    assert calls[0].prompt == asked[2].prompt
    assert (branch.num_branches, branch.metrics["history_forks"], branch.metrics["own_turns"]) == (1, 0, 2)
    assert_exact(branch, branch.branches[0], calls)
    trained = sum(sum(one.sampled_mask) for trace in (trunk, branch) for one in trace.branches)
    assert trained == sum(len(call.logprobs) for call in (*asked, *calls))

    # The same nodes, had the agent begun with another request: nothing of them trains.
    other = Continued(turn.model_copy(update={"digest": "0" * 64}), {}, seeded=1)
    other.asked(turn.digest)
    other.finish(branch)
    assert branch.info["branch"]["same_request"] is False
    assert not any(any(node.mask) or len(node.logprobs) for node in branch.nodes)


def subcalls(family: Family, *words: str) -> list[Says]:
    """Turns of a main agent that ask a sub-LLM."""
    calls = [family.call("llm_subcall", {"prompt": f"Say {word}.", "files": []}) for word in words]
    return [Says(family.answer("", call, reasoning="Hm.")) for call in calls]


async def test_sub_calls_of_trunk_and_branch_train_once_each(tokenizer: Path, tmp_path: Path) -> None:
    family = FAMILIES["qwen3"]

    async def played(dataset: Path, main: list[Says], **turns: str) -> tuple[list[AnyTrace], list[Call], list[Call]]:
        """Main and sub trace, and what the engine saw and sampled of each."""
        words = ("apple", "pear", "plum")
        sub = {f"Say {word}": [Says(family.answer(word, reasoning="Eh."))] for word in words}
        engine = TokenEngine(tokenizer, family, Lines(family, main, sub))
        fields = {"taskset": {"id": "opencode-rlm", "dataset": str(dataset)}, "sub_model": SUB_MODEL, "turns": turns}
        async with engine.serving() as url:
            client = train_client(url, family, tokenizer)
            config = OpenCodeRLMEnvConfig.model_validate(fields)
            (episode,) = await episodes(config, client, MAIN_MODEL, kind=OpenCodeRLMEnv)
        assert episode.ok, episode.errors
        return list(episode.traces), engine.of(MAIN_MODEL), engine.of(SUB_MODEL)

    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", "question": "Go.", "answer": "x"}])
    trunk, asked, sub_asked = await played(rows, subcalls(family, "apple", "pear"), keep=str(tmp_path / "kept"))
    (turn,) = [one for one in kept_turns(tmp_path / "kept") if one.turn == 2]
    branch, calls, sub_calls = await played(turn.place, subcalls(family, "plum"))
    assert calls[0].prompt == asked[1].prompt
    assert_exact(branch[0], branch[0].branches[0], calls)
    before, own = branch[1].branches
    assert list(before.token_ids) == sub_asked[0].sequence
    assert not any(before.sampled_mask)
    assert not any(any(node.mask) or len(node.logprobs) for node in branch[1].nodes[: len(before.nodes)])
    assert_exact(branch[1], own, sub_calls)
    trained = [sum(sum(one.sampled_mask) for one in trace.branches) for trace in (*trunk, *branch)]
    sampled = [sum(len(call.logprobs) for call in every) for every in (asked, sub_asked, calls, sub_calls)]
    assert trained == sampled
    assert all(sampled)
