"""The judge: one language-model call that compares an answer with the reference.

Invariant: a verdict is one of three letters that the judge put alone on its last line. Everything else (no reply, an
error, a refusal, a reply that was cut off or says something else) is a `JudgeError`, never a verdict.
"""

import re
import time
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import openai
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import ValidationError
from verifiers.v1.clients.base import build_async_openai
from verifiers.v1.judge import JudgeResponse
from verifiers.v1.types import Usage

from opencode_rubrics.errors import JudgeError
from opencode_rubrics.math_config import MathConfig
from opencode_rubrics.rubric import AnyTrace

CALL_NAME = "math_judge"
Letter = Literal["A", "B", "C"]

_LETTER = re.compile(
    r"[\W_]*(?:(?:final\s+)?(?:verdict|answer|judg(?:e)?ment)\b[\W_]*(?:is\b)?[\W_]*)?([ABC])[\W_]*", re.IGNORECASE
)
_PLACEHOLDER = re.compile(r"\{(question|reference|answer)\}")
_SDK_FIELDS = frozenset(CompletionCreateParamsNonStreaming.__annotations__)


@dataclass(frozen=True)
class JudgeVerdict:
    """The judge's letter; "A" means right."""

    letter: Letter
    seconds: float


async def ask_judge(config: MathConfig, question: str, reference: str, answer: str, trace: AnyTrace) -> JudgeVerdict:
    """Ask the judge once, and record the call with its usage on `trace`.

    Raises:
        JudgeError: No verdict; the message tells an unreachable judge, a refusal, a reply that was cut off and one
            that cannot be understood apart.
    """
    fields = {"question": question, "reference": reference, "answer": answer}
    template = config.judge_prompt or files(__package__).joinpath("judge_prompt.txt").read_text(encoding="utf-8")
    # One pass over the template: an answer that holds "{reference}" stays as it is.
    prompt = _PLACEHOLDER.sub(lambda found: fields[found[1]], template)
    started = time.perf_counter()
    request = {"model": config.judge_model, "messages": [{"role": "user", "content": prompt}]}
    completion = await _complete(config, request)
    text, usage = _text(completion), _usage(completion)
    trace.record_judge_call(name=CALL_NAME, request=request, response=JudgeResponse[str](text=text, usage=usage))
    return JudgeVerdict(_verdict(completion, text, config.judge_model), time.perf_counter() - started)


async def _complete(config: MathConfig, request: dict[str, Any]) -> ChatCompletion:
    sampling = config.judge_sampling.model_dump(exclude_none=True)
    known = {name: value for name, value in sampling.items() if name in _SDK_FIELDS}
    other = {name: value for name, value in sampling.items() if name not in _SDK_FIELDS}
    try:
        async with build_async_openai(config.judge_client) as plain:
            client = plain.with_options(timeout=config.judge_timeout, max_retries=config.judge_max_retries)
            completion: ChatCompletion = await client.chat.completions.create(**request, **known, extra_body=other)
    except openai.APIStatusError as error:
        raise JudgeError(
            f"judge {config.judge_model!r} answered {error.status_code} after {config.judge_max_retries} retries: "
            f"{str(error)[:300]}; check judge_model, judge_client and its API key"
        ) from error
    except openai.OpenAIError as error:
        raise JudgeError(
            f"judge {config.judge_model!r} at {config.judge_client.base_url} gave no reply after "
            f"{config.judge_max_retries} retries ({type(error).__name__}: {str(error)[:200]}); check judge_client, or "
            "raise judge_timeout"
        ) from error
    except (ValidationError, ValueError) as error:
        raise JudgeError(f"judge {config.judge_model!r} replied with something else than JSON: {error}") from error
    if not isinstance(completion, ChatCompletion) or not completion.choices:
        raise JudgeError(f"judge {config.judge_model!r} replied with something else than a chat completion")
    return completion


def _text(completion: ChatCompletion) -> str:
    message = completion.choices[0].message
    return (message.content or "") if message is not None else ""


def _usage(completion: ChatCompletion) -> Usage | None:
    usage: Usage | None = Usage.from_openai(completion.usage)
    return usage


def _verdict(completion: ChatCompletion, text: str, model: str) -> Letter:
    choice = completion.choices[0]
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
    if found is None:
        return None
    letter = found[1].upper()
    return "A" if letter == "A" else "B" if letter == "B" else "C"
