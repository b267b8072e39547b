"""`Tbench2Env`: the client of a Terminal-Bench 2 step environment, ours or OpenEnv's own."""

from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient

from opencode_openenv.client import with_token, without_secrets
from opencode_openenv.tbench2.models import Tbench2Action, Tbench2Observation, Tbench2State


class Tbench2Env(EnvClient[Tbench2Action, Tbench2Observation, Tbench2State]):
    """A session with the server, which may ask for a `token`; a context manager, sync and async. One answer may take
    `message_timeout_s`: an evaluation takes what the task gives its tests, 900 s where it says nothing, and as much
    again when the agent took the verdict away."""

    def __init__(
        self, base_url: str, *, token: str | None = None, message_timeout_s: float = 3600.0, **options: Any
    ) -> None:
        self._address = with_token(base_url, token)
        super().__init__(base_url=self._address, message_timeout_s=message_timeout_s, **options)

    async def _connect_async(self) -> "Tbench2Env":
        with without_secrets(self._address):
            connected: Tbench2Env = await super()._connect_async()
        return connected

    def _step_payload(self, action: Tbench2Action) -> dict[str, Any]:
        given: dict[str, Any] = action.model_dump(mode="json", exclude_defaults=True)
        return {**given, "action_type": str(action.action_type)}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Tbench2Observation]:
        told = payload.get("observation") or {}
        reward, done = payload.get("reward"), bool(payload.get("done", False))
        known = {name: value for name, value in told.items() if name in Tbench2Observation.model_fields}
        observation = Tbench2Observation(**{**known, "reward": reward, "done": done})
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> Tbench2State:
        known = {name: value for name, value in payload.items() if name in Tbench2State.model_fields}
        return Tbench2State(**known)
