"""The judge: one language-model call that compares an answer with the reference.

Invariant: a verdict is one of three letters that the judge put alone on its last line. Everything else (no reply, an
error, a refusal, a reply that was cut off or says something else) is a `JudgeError`, never a verdict.
"""

import re
from importlib.resources import files
from typing import Any, Literal, cast

import openai
import verifiers.v1 as vf
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice
from verifiers.v1.clients.base import build_async_openai
from verifiers.v1.types import Usage

from opencode_rubrics.errors import JudgeError
from opencode_rubrics.math_config import MathConfig
from opencode_rubrics.rubric import AnyTrace

Letter = Literal["A", "B", "C"]
"""The judge's verdict; "A" means right."""

_LETTER = re.compile(
    r"[\W_]*(?:(?:final\s+)?(?:verdict|answer|judg(?:e)?ment)\b[\W_]*(?:is\b)?[\W_]*)?([ABC])[\W_]*", re.IGNORECASE
)


class MathJudge(vf.Judge[Letter]):
    """verifiers' judge with a stricter verdict; `evaluate` takes `question`, `reference` and `answer`.

    The call is made here, because verifiers' own neither tries again nor tells why a reply ended, and the errors of a
    judge that refused or was cut off have to say so.
    """

    def __init__(self, config: MathConfig) -> None:
        endpoint = config.judge_client.model_dump()
        super().__init__(vf.JudgeConfig(**endpoint, name="math_judge", model=config.judge_model))
        self.prompt = config.judge_prompt or files(__package__).joinpath("judge_prompt.txt").read_text("utf-8")
        self._options = config

    async def complete(
        self, messages: str | vf.Messages, *, trace: AnyTrace | None = None, **_: Any
    ) -> vf.JudgeResponse[Letter]:
        """The reply to one prompt with its verdict, recorded on `trace` whatever it says.

        Raises:
            JudgeError: no verdict; the message tells an unreachable judge, a refusal, a reply that was cut off and one
                that cannot be understood apart.
        """
        request = {"model": self.config.model, "messages": [{"role": "user", "content": messages}]}
        completion = await self._ask(request)
        choice = completion.choices[0]
        text = (choice.message.content or "") if choice.message is not None else ""
        response = vf.JudgeResponse[Letter](text=text, usage=Usage.from_openai(completion.usage))
        if trace is not None:
            trace.record_judge_call(name=self.reward_name, request=request, response=response)
        response.parsed = self._verdict(choice, text)
        return response

    async def _ask(self, request: dict[str, Any]) -> ChatCompletion:
        options, model = self._options, self.config.model
        sampling = options.judge_sampling.model_dump(exclude_none=True)
        try:
            async with build_async_openai(self.config) as plain:
                client = plain.with_options(timeout=options.judge_timeout, max_retries=options.judge_max_retries)
                completion = await client.chat.completions.create(**request, extra_body=sampling)
        except openai.APIStatusError as error:
            raise JudgeError(
                f"judge {model!r} answered {error.status_code} after {options.judge_max_retries} retries: "
                f"{str(error)[:300]}; check judge_model, judge_client and its API key"
            ) from error
        except openai.OpenAIError as error:
            raise JudgeError(
                f"judge {model!r} at {self.config.base_url} gave no reply after {options.judge_max_retries} retries "
                f"({type(error).__name__}: {str(error)[:200]}); check judge_client, or raise judge_timeout"
            ) from error
        except ValueError as error:
            raise JudgeError(f"judge {model!r} replied with something else than JSON: {error}") from error
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            raise JudgeError(f"judge {model!r} replied with something else than a chat completion")
        return completion

    def _verdict(self, choice: Choice, text: str) -> Letter:
        model = self.config.model
        refusal = getattr(choice.message, "refusal", None)
        if refusal or choice.finish_reason == "content_filter":
            raise JudgeError(f"judge {model!r} refused: {refusal or 'content filter'}; choose another judge_model")
        letter = read_verdict(text)
        if letter is not None:
            return letter
        if choice.finish_reason == "length":
            raise JudgeError(f"judge {model!r} was cut off before its verdict; raise judge_sampling.max_tokens")
        raise JudgeError(f"judge {model!r} gave no verdict A, B or C on its last line: {text[-200:]!r}")


def read_verdict(text: str) -> Letter | None:
    """The letter alone on the last line of a judge's reply, after any thinking."""
    if "<think>" in text and "</think>" not in text:
        return None
    lines = [line for line in text.rpartition("</think>")[2].splitlines() if line.strip()]
    boxed = re.sub(r"\\(?:boxed|text)\s*", "", lines[-1]) if lines else ""
    found = _LETTER.fullmatch(boxed)
    return cast(Letter, found[1].upper()) if found else None
