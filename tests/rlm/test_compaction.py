"""A sub-agent of a model with a smaller window: OpenCode, which knows one for all, summarises by the smallest."""

from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel

from tests.opencode.test_compaction import RESERVE, WINDOW, is_summary
from tests.opencode.test_compaction_task import LONG, assert_stands, saying
from tests.rlm.episodes import QUESTION, play, task
from tests.support.seats import MAIN_MODEL, SUB_MODEL

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

OWN = "Count a lot, sub-agent."


async def test_the_smallest_of_several_windows_counts_and_each_conversation_keeps_its_task(tmp_path: Path) -> None:
    policy, left = saying(*LONG, Reply(text="Counted."))
    harness = {
        "id": "opencode-rlm",
        "disable_compaction": False,
        "window_reserve": RESERVE,
        "compaction_trains": "sections",
    }
    async with ScriptedModel(policy, context_window=WINDOW) as small:
        sub = {"model": SUB_MODEL, "client": {"base_url": small.base_url, "api_key_var": "NO_SUCH_KEY"}}
        options = {"agent": {"harness": harness}, "sub": sub, "sub_llm_max_turns": 20}
        steps = [task(OWN), Reply(text="done")]
        played = await play(tmp_path, steps, policy, options=options, server={"context_window": 4 * WINDOW})
        asked = small.requests
    assert played.episode.ok, played.problems
    assert left == []
    assert [call.error for trace in played.episode.traces for call in trace.calls if call.error] == []
    assert_stands(asked, OWN)
    assert played.sub.info["history"]["trains"] == "sections"
    used = sum(one["used"] for one in played.sub.info["history"]["summaries"])
    assert played.main.metrics["sub_llm_compactions"] == used > 0
    mains = [request.body["messages"] for request in played.asked(MAIN_MODEL)]
    assert [messages[1]["content"] for messages in mains] == [QUESTION] * 2
    assert not any(is_summary(request.body) for request in played.requests)
