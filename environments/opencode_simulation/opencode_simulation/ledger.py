"""The ledger of one episode: what the world gave for each action. Only the environment reads it."""

from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat, JsonValue

LEDGER_KEY = "simulation"
"""Where `trace.info` has it, as the JSON of a `Ledger`."""
TERMINATION_KEY = "termination_reason"
"""Where `trace.info` has why the episode ended."""
FINISH = "finish()"
"""In an entry's place for a tool: the world's own judgement of its final state. No tool can have this name."""
TerminationReason = Literal["control_plane_signal", "max_steps", "user_stop"]
"""Why an episode ended, in the words of its family: the world said so; the step or turn limit; the simulated user."""


class LedgerEntry(BaseModel, frozen=True, allow_inf_nan=False):
    step: int
    """From 1."""
    tool: str
    """Its name; `FINISH` of what the world's `finish` gave."""
    arguments: dict[str, JsonValue]
    """As the tool took them, its defaults included."""
    observation: JsonValue
    """What the agent was shown."""
    reward: FiniteFloat
    terminated: bool
    truncated: bool
    info: dict[str, JsonValue]


class LedgerSummary(BaseModel, allow_inf_nan=False):
    world: str
    seed: int | None
    config: dict[str, JsonValue]
    first_observation: JsonValue = None
    steps: int = 0
    """The agent's: what `finish` gave is not one."""
    total_reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    refused: int = 0
    """Calls that changed nothing: the world refused them (`InvalidAction`), or the episode was over."""
    termination_reason: TerminationReason | None = None
    error: str | None = None
    """How the world failed."""


class Ledger(BaseModel):
    """All of it, as `trace.info["simulation"]` holds it."""

    steps: list[LedgerEntry] = []
    summary: LedgerSummary

    def add(self, entry: LedgerEntry) -> None:
        self.steps.append(entry)
        whole = self.summary
        whole.total_reward += entry.reward
        if entry.tool != FINISH:
            whole.steps, whole.terminated, whole.truncated = entry.step, entry.terminated, entry.truncated


def ledger_of(info: dict[str, Any]) -> Ledger | None:
    """The ledger in a trace's `info`; None where no world was played."""
    found = info.get(LEDGER_KEY)
    return None if found is None else Ledger.model_validate(found)
