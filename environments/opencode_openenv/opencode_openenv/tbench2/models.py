"""What travels between a Terminal-Bench 2 client and its environment."""

from enum import StrEnum
from typing import Any

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class ActionType(StrEnum):
    """Names what can be done in a task's sandbox."""

    EXEC = "exec"
    """Run `command`; with `block` to its end, else as the live session `session_id`."""
    WRITE = "write"
    """Write `command` and a line end to a live session."""
    VIEW = "view"
    """What a live session has printed since it was last looked at."""
    WAIT = "wait"
    """What a live session has printed, once it has ended or `wait_seconds` are over."""
    KILL = "kill"
    """End a live session and all that it started."""
    WRITE_FILE = "write_file"
    """Write `content` to `file_path`, relative to the work directory."""
    EVALUATE = "evaluate"
    """Score the work, which ends the episode."""
    CLOSE = "close"
    """End the episode without a score; where it has ended, nothing."""


class Tbench2Action(Action):
    """One action."""

    action_type: ActionType = Field(ActionType.EXEC, description="What to do.")
    command: str = Field("", description="Shell command of exec, or the input of write.")
    session_id: str | None = Field(None, description="The live session; tb2-session if not named.")
    block: bool = Field(True, description="Whether exec waits for the command's end.")
    wait_seconds: float | None = Field(None, ge=0, allow_inf_nan=False, description="How long wait waits; 5 s.")
    file_path: str = Field("", description="Path of write_file, relative to the work directory or absolute.")
    content: str = Field("", description="Content of write_file.")


class Tbench2Observation(Observation):
    """The observation after an action. `reward` is set by evaluate alone."""

    instruction: str = Field("", description="The task.")
    output: str = Field("", description="What the command printed, standard error included.")
    success: bool = Field(True, description="Whether the action could be done; a command that fails is one that ran.")
    error: str = Field("", description="Why it could not.")
    task_id: str = ""
    task_path: str = ""
    session_id: str | None = None
    action_type: str = ""
    info: dict[str, Any] = Field(
        default_factory=dict, description="exit_code of a command; tests_passed and docker_image of evaluate."
    )


class Tbench2State(State):
    """Tells where the episode stands."""

    task_id: str = ""
    task_path: str = ""
    session_id: str = ""
    terminal_ready: bool = False
    last_action_type: str = ""
    last_command: str = ""
    last_output: str = ""
