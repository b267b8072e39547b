"""The harness of a user that a model plays: one chat completion for each of its turns, and no program."""

from typing import ClassVar

import openai
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import HarnessError
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData

from opencode_env.cli_agent.traces import AnyTrace

_CALL_SECONDS = 600.0
_RETRIES = 3


class UserHarness(Harness[HarnessConfig]):
    """Asks the model from this process, through the interception like every agent."""

    APPENDS_SYSTEM_PROMPT: ClassVar[bool] = True
    SUPPORTS_RESUME: ClassVar[bool] = True
    EXECUTES_CODE: ClassVar[bool] = False
    NEEDS_CONTAINER: ClassVar[bool] = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: AnyTrace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """Have the model say one thing to the conversation so far.

        Raises:
            HarnessError: it was not answered; who serves the calls knows why.
        """
        system, prompt = self.resolve_prompt(data)
        said = [] if prompt is None or isinstance(prompt, str) else [message_to_wire(message) for message in prompt]
        messages = [{"role": "system", "content": system}, *said]
        client = openai.AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=_CALL_SECONDS, max_retries=_RETRIES)
        async with client:
            try:
                await client.chat.completions.create(model=ctx.model, messages=messages)  # type: ignore[arg-type]
            except openai.OpenAIError as error:
                raise HarnessError(f"the user's model was not to be had: {error}") from error
        return ProgramResult(0, "", "")
