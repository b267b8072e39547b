"""Rollouts of a `run_rollout` server as OpenEnv's loop-owning sessions, which TRL's asynchronous GRPO trains on.

It stands on OpenEnv ≥ 0.10 alone, which does not fit beside verifiers: nothing of this repository is imported. What
`rollouts.py` has to leave out is in a session's training trace: TRL makes a row of every branch and sub-agent.
Invariant: a rollout without a reward or without token ids raises, and TRL leaves it out of its group's baseline.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from openenv.core.harness import ResourceSession, ResourceSessionFactory, TrainingTrace, VerifyResult
from openenv.core.mcp_client import MCPToolClient

LONGEST_SECONDS = 14_400.0
"""Seconds that a rollout may take, waiting for a place included."""


class UnscorableError(RuntimeError):
    """The rollout is not to be trained on; the message says why."""


class OpenCodeSession(ResourceSession):  # type: ignore[misc,unused-ignore]
    """One rollout; TRL waits for it, then asks for its trace and its reward.

    Args:
        client: a connected, synchronous client of the server.
        call: the arguments of `run_rollout`.
    """

    def __init__(self, client: Any, call: Mapping[str, Any]) -> None:
        self._client = client
        self._call = call
        self._result: dict[str, Any] = {}
        self._closed = threading.Lock()

    def initial_messages(self) -> list[Any]:
        """None: the agent has its own."""
        return []

    def list_tools(self) -> list[Any]:
        """None: the agent has its own."""
        return []

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Refused: the agent runs its loop itself."""
        raise NotImplementedError(f"{name}: the agent calls its own tools")

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Run the rollout; the agent's exit code.

        Raises:
            TimeoutError: the agent's time was up; trace and reward are there all the same.
            UnscorableError: there is no reward, or there are no token ids.
        """
        answer = self._client.call_tool("run_rollout", **self._call)
        self._result = json.loads(answer) if isinstance(answer, str) else dict(answer)
        if self._result["reward"] is None or self._result["training_trace"] is None:
            raise UnscorableError(self._result["error"] or self._result["training_trace_reason"] or "no reward")
        if self._result["stop_condition"] == "agent_timeout":
            raise TimeoutError(self._result["error"])
        return int(self._result["agent_exit_code"] or 0)

    def fetch_training_trace(self) -> Any:
        """The rollout's training trace, checked by OpenEnv."""
        return TrainingTrace.model_validate_json(json.dumps(self._result["training_trace"]))

    def verify(self, transcript: Sequence[Any], final_state: Any | None = None) -> Any:
        """The server's reward."""
        return VerifyResult(env_reward=self._result["reward"], done=True)

    def close(self) -> None:
        """Leave; a rollout that still runs is ended by the server."""
        if self._closed.acquire(blocking=False):
            self._client.close()


class OpenCodeSessionFactory(ResourceSessionFactory):  # type: ignore[misc,unused-ignore]
    """Makes a session for each rollout of a prompt.

    Args:
        server_url: of `opencode-openenv`; with its token as http://:TOKEN@host:port.
        engine_url: the vLLM server that holds the trainer's weights, with its /v1.
        model: name of the model.
        tasks: further arguments of `run_rollout` by instruction: TRL hands over prompts only.
        max_tokens: cap of one model call.
        sampling: the trainer's policy, as OpenEnv's `training_sampling` has checked it.
    """

    def __init__(
        self,
        server_url: str,
        engine_url: str,
        model: str,
        tasks: Mapping[str, Mapping[str, Any]],
        max_tokens: int = 4096,
        *,
        sampling: Mapping[str, Any],
    ) -> None:
        self._server_url = server_url
        self._tasks = tasks
        self._common = {
            "base_url": engine_url,
            "model": model,
            "token_ids": True,
            "temperature": float(sampling["temperature"]),
            "max_tokens_cap": max_tokens,
        }

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> OpenCodeSession:
        """A session for a prompt, connected.

        Raises:
            KeyError: the prompt has no task.
        """
        instruction = task if isinstance(task, str) else str(task[-1]["content"])
        call = {**self._tasks[instruction], **self._common, "instruction": instruction, "task_id": episode_id or ""}
        client = MCPToolClient(base_url=self._server_url, message_timeout_s=LONGEST_SECONDS).sync()
        client.connect()
        return OpenCodeSession(client, call)
