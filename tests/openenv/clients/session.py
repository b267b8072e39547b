"""Plays sessions of `examples/trl` with given answers, under whatever OpenEnv runs this; the argument is their list."""

import json
import sys
from typing import Any

from openenv.core.harness import ResourceSessionFactory, TrainableSession
from openenv.core.harness.capture.upstream import training_sampling

from examples.trl.sessions import OpenCodeSession, OpenCodeSessionFactory, UnscorableError


class Answering:
    """A client that has the answer already."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: dict[str, Any] = {}
        self.closed = 0

    def call_tool(self, name: str, **arguments: Any) -> str:
        self.asked = {"tool": name, **arguments}
        return json.dumps(self.answer)

    def close(self) -> None:
        self.closed += 1


def play(answer: dict[str, Any]) -> dict[str, Any]:
    """What TRL would hear of a session with that answer."""
    client = Answering(answer)
    session = OpenCodeSession(client, {"instruction": "do it"})
    assert isinstance(session, TrainableSession)
    told: dict[str, Any] = {"ended": "well"}
    try:
        session.wait_for_completion()
    except (TimeoutError, UnscorableError) as error:
        told["ended"] = f"{type(error).__name__}: {error}"
    if not told["ended"].startswith("Unscorable"):
        trace = session.fetch_training_trace()
        told["turns"] = [[turn.completion_token_ids, turn.loss_mask] for turn in trace.turns]
        assert len(trace.to_trace_entries()) == len(trace.turns)
        told["reward"] = session.verify([]).env_reward
    session.close()
    session.close()
    assert client.closed == 1
    assert client.asked == {"tool": "run_rollout", "instruction": "do it"}
    return told


factory = OpenCodeSessionFactory("http://127.0.0.1:9", "u", "m", {}, sampling=training_sampling({"temperature": 0.7}))
assert isinstance(factory, ResourceSessionFactory)
print(json.dumps([play(answer) for answer in json.loads(sys.argv[1])]))
