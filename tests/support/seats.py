"""A conversation of several segments: the main agent's seat in a sandbox, and that of its sub-agents beside it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarness, OpenCodeHarnessConfig
from opencode_env.cli_agent.interception import SubRollout, SubSettings
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.traces import AnyTrace
from opencode_rlm.env import OpenCodeRLMHarnessConfig
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined
from verifiers.v1.agent import Interaction, make_agent
from verifiers.v1.clients import ClientConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.interception import Interception
from verifiers.v1.runtimes import Runtime

MAIN_MODEL, SUB_MODEL = "org/main-model", "org/sub-model"


@dataclass
class Seats:
    """Both seats while their agents speak; the traces are whole when the conversation is over."""

    box: Runtime
    main_agent: Interaction
    _side: SubRollout

    @property
    def main(self) -> AnyTrace:
        """The main agent's trace."""
        return self._side.main

    @property
    def sub(self) -> AnyTrace:
        """The trace of its sub calls."""
        return self._side.trace


@asynccontextmanager
async def seated(
    client: ClientConfig,
    interception: Interception,
    *,
    recursive: bool,
    sub_client: ClientConfig | None = None,
    settings: SubSettings | None = None,
    summary_client: ClientConfig | None = None,
    **harness: Any,
) -> AsyncIterator[Seats]:
    """The real binary in a confined sandbox of its own, ready for the first segment.

    Args:
        client: of both models.
        sub_client: of the sub model, if not the same.
        interception: what serves the model calls.
        recursive: whether the harness is the one with sub-agents.
        settings: of the sub calls.
        summary_client: of the seat that makes the summaries, of the sub model; None = each model makes its own.
        harness: fields of the harness.
    """
    local, null = vf.SubprocessConfig(), NullHarnessConfig(id="null")
    kind, name = (OpenCodeRLMHarnessConfig, "opencode-rlm") if recursive else (OpenCodeHarnessConfig, "opencode-env")
    main = vf.AgentConfig(harness=kind(id=name, **harness), runtime=local, model=MAIN_MODEL, client=client)
    agent = make_agent(main, interception=interception)
    other = make_agent(vf.AgentConfig(harness=null, runtime=local, model=SUB_MODEL, client=sub_client or client))
    summariser = make_agent(
        vf.AgentConfig(harness=null, runtime=local, model=SUB_MODEL, client=summary_client or client)
    )
    sides: list[SubRollout] = []

    def minted(trace: AnyTrace) -> None:
        sides.append(SubRollout(trace, other, settings or SubSettings()))
        rollout_of(trace).sub = sides[-1]
        rollout_of(trace).summary_seat = None if summary_client is None else summariser

    assert isinstance(agent.harness, OpenCodeHarness)
    task: vf.Task[Any, Any, Any] = vf.Task(vf.TaskData(idx=0, prompt=None))
    async with (
        provision_confined(LocalSandboxConfig(), await agent.harness.local_binds()) as box,
        agent.interaction(task, runtime=box, on_trace=minted) as interaction,
    ):
        (side,) = sides
        yield Seats(box, interaction, side)
    await side.end()
