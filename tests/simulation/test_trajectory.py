"""A rollout as a trajectory: the row is the one that was given, also after a world has filled its prompt."""

from opencode_simulation import trajectory_of
from opencode_simulation.eval_protocol import DatasetRow, MCPSession, MCPToolCall, Trajectory
from opencode_simulation.ledger import FINISH
from opencode_simulation.task import SimulationTaskData, _write
from pydantic import BaseModel

from tests.rubrics.conftest import trace_of
from tests.simulation import ledgers


def test_the_row_of_a_trajectory_has_its_template_and_its_own_configuration() -> None:
    data = SimulationTaskData(idx=0, id="one", seed=4, prompt="Go.\n{observation}", config={"size": 5}, rollout="r")
    trace = trace_of(data)
    ledger = ledgers.empty(seed=4, config={"size": 5, "slippery": True})
    _write(trace, ledger)
    assert trace.task.data.prompt == "Go.\n{observation}"
    ledger.summary.first_observation = {"at": "S"}
    ledger.add(ledgers.entry("go", terminated=True))
    _write(trace, ledger)
    assert trace.task.data.prompt == 'Go.\n{"at": "S"}'
    found = trajectory_of(trace)
    row = found.session.dataset_row
    assert (row.id, row.seed) == ("one", 4)
    assert (row.user_prompt_template, row.environment_context) == ("Go.\n{observation}", {"size": 5})
    assert (found.observations, found.rewards) == ([{"at": "S"}, "there"], [0.5])
    assert found.tool_calls[0].tool_call_id is None


FIELDS: dict[type[BaseModel], tuple[str, ...]] = {
    Trajectory: (
        *("session", "observations", "actions", "rewards", "terminated", "total_reward", "steps", "duration"),
        *("control_plane_steps", "control_plane_summary", "termination_reason", "conversation_history"),
        *("usage", "llm_usage_summary"),
    ),
    MCPSession: ("session_id", "base_url", "seed", "model_id", "dataset_row", "terminated", "last_observation"),
    DatasetRow: ("id", "seed", "system_prompt", "user_prompt_template", "environment_context", "user_simulation"),
    MCPToolCall: ("tool_name", "arguments", "tool_call_id"),
}
"""Of eval-protocol 0.3.33; `llm_usage_summary` is the name of `usage` in 0.0.3."""


def test_the_fields_are_those_of_eval_protocol_and_have_its_types() -> None:
    for kind, names in FIELDS.items():
        assert [name for name in names if name not in kind.model_fields] == []
    trace = trace_of(SimulationTaskData(idx=0, id="one", seed=4, prompt="Go.", config={}))
    ledger = ledgers.empty(seed=4, first_observation="here")
    ledger.add(ledgers.entry("go", arguments={"to": "G"}, info={"n": 1}))
    ledger.add(ledgers.entry(FINISH, step=2, info={"n": 2}))
    _write(trace, ledger)
    trace.info["termination_reason"] = "user_stop"
    found = trajectory_of(trace)
    assert found.actions == ["go({'to': 'G'})"]
    assert (found.rewards, found.total_reward, found.steps) == ([0.5, 0.5], 1.0, 1)
    session = found.session
    assert (session.terminated, session.last_observation, session.base_url) == (True, "there", "")
    assert (found.terminated, found.termination_reason) == (True, "user_stop")
    assert found.usage == found.llm_usage_summary == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    first, last = found.control_plane_steps
    assert first == {
        "step": 0,
        "reward": 0.5,
        "terminated": False,
        "truncated": False,
        "info": {"n": 1},
        "tool_calls": ["go({'to': 'G'})"],
        "num_tool_calls": 1,
    }
    assert (last["step"], last["tool_calls"], last["num_tool_calls"]) == (1, [], 0)
    whole = found.control_plane_summary
    assert (whole["total_reward"], whole["termination_reason"], whole["final_step"]) == (1.0, "user_stop", 1)
    assert whole["control_plane_source"] == {"n": 2}


def test_an_agent_that_just_stops_has_no_reason() -> None:
    trace = trace_of(SimulationTaskData(idx=0, id="one", prompt="Go."))
    _write(trace, ledgers.empty(first_observation="here"))
    found = trajectory_of(trace)
    assert (found.termination_reason, found.terminated, found.actions, found.observations) == ("", False, [], ["here"])
    assert found.control_plane_summary["final_step"] == -1
