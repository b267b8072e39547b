"""A rollout as a trajectory: the row is the one that was given, also after a world has filled its prompt."""

from opencode_env.simulation import trajectory_of
from opencode_env.simulation.data import SimulationTaskData
from opencode_env.simulation.ledger import Ledger, LedgerEntry, LedgerSummary
from opencode_env.simulation.task import _write

from tests.rubrics.conftest import trace_of


def test_the_row_of_a_trajectory_has_its_template_and_its_own_configuration() -> None:
    data = SimulationTaskData(idx=0, id="one", seed=4, prompt="Go.\n{observation}", config={"size": 5}, rollout="r")
    trace = trace_of(data)
    ledger = Ledger(summary=LedgerSummary(world="w", seed=4, config={"size": 5, "slippery": True}))
    _write(trace, ledger)
    assert trace.task.data.prompt == "Go.\n{observation}"
    ledger.summary.first_observation = {"at": "S"}
    step = LedgerEntry(
        step=1, tool="go", arguments={}, observation="there", reward=0.5, terminated=True, truncated=False, info={}
    )
    ledger.add(step)
    _write(trace, ledger)
    assert trace.task.data.prompt == 'Go.\n{"at": "S"}'
    found = trajectory_of(trace)
    row = found.session.dataset_row
    assert (row.id, row.seed) == ("one", 4)
    assert (row.user_prompt_template, row.environment_context) == ("Go.\n{observation}", {"size": 5})
    assert (found.observations, found.rewards) == ([{"at": "S"}, "there"], [0.5])
    assert found.actions[0].tool_call_id is None
