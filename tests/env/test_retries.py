"""What is tried again: failures of the infrastructure, and what an agent did to itself only where the user says so."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from opencode_env.cli_agent.outcomes import AgentError
from opencode_env.opencode.env import OpenCodeEnvConfig
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_env.tool_backends.serving import BrokenBackendError
from opencode_env.user_simulation.sides import BrokenUserError
from opencode_rubrics import SandboxFileError
from opencode_simulation.errors import BrokenWorldError
from verifiers.v1.trace import Error
from verifiers.v1.utils.retries import RetryState

from tests.support.replies import bash
from tests.support.rows import probe, probe_arguments, write_rows
from tests.support.user_home import Finished, UserHome

RULE = {"type": "AgentError", "max_retries": 1}


BROUGHT_ABOUT = (AgentError, SandboxFileError, BrokenWorldError, BrokenBackendError, BrokenUserError)


def tries(retries: dict[str, Any], kind: str) -> int:
    """How often a rollout with this error is tried again, on both sides of an env server."""
    config = OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}, "retries": retries})
    sent = OpenCodeEnvConfig.model_validate(config.model_dump(mode="json"))
    assert sent.retries == config.retries
    state = RetryState(sent.retries)
    return sum(state.next_error([Error(type=kind, message="x")]) is not None for _ in range(10))


@pytest.mark.parametrize(
    ("retries", "own", "other"),
    [
        ({}, 0, 0),
        ({"max_retries": 2}, 0, 2),
        ({"max_retries": 2, "rules": [{"type": "SandboxError", "max_retries": 5}]}, 0, 2),
        ({"max_retries": 2, "rules": [RULE]}, 1, 2),
        ({"rules": [{"message": "x", "max_retries": 3}]}, 3, 3),
    ],
)
def test_an_agents_own_error_is_tried_again_only_by_a_rule_that_matches_it(
    retries: dict[str, Any], own: int, other: int
) -> None:
    assert (tries(retries, "AgentError"), tries(retries, "HarnessError")) == (own, other)


@pytest.mark.parametrize("kind", BROUGHT_ABOUT)
def test_what_an_agent_can_bring_about_is_not_tried_again(kind: type[Exception]) -> None:
    assert tries({"max_retries": 2}, kind.__name__) == 0
    assert tries({"max_retries": 2, "rules": [{"type": kind.__name__, "max_retries": 1}]}, kind.__name__) == 1


def test_the_default_alone_tries_nothing_again() -> None:
    assert RetryState(OpenCodeEnvConfig().retries).max_retries == 0


@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
@pytest.mark.parametrize(("rules", "starts"), [((), 1), (("--env.retries.rules", f"[{RULE}]".replace("'", '"')), 2)])
def test_an_agent_that_kills_its_opencode_gets_no_second_try(home: UserHome, rules: Iterable[str], starts: int) -> None:
    rows = write_rows(home.root / "rows.jsonl", [probe("one")])

    async def run() -> tuple[Finished, int]:
        async with ScriptedModel(ScriptPolicy.of(bash("pkill -9 opencode; kill -9 $PPID"), Reply(text="x"))) as model:
            unscored = ("--env.agent-errors", "error")
            arguments = [*probe_arguments(rows), *unscored, "--env.retries.max-retries", "2", *rules]
            finished = await home.run("killed", model.base_url, *arguments)
            return finished, len(model.requests)

    finished, requests = asyncio.run(run())
    assert finished.error("one").startswith("AgentError: OpenCode was killed or crashed")
    assert requests == starts
