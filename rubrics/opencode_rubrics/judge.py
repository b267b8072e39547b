"""The judge, a language model that compares an answer with the reference, and `JudgeRubric`, which scores by it alone.

Invariant: a verdict is one of a few choices that the judge put alone on its last line. Everything else is the answer's
doing if the judge, asked after it, gives a verdict on the reference itself each time, and none on this answer; else it
is a `JudgeError`. Its calls have limits of their own, and are not scoring's time. The judge sees of a rollout its
extracted answer only, whole and behind a mark that nobody could know.
"""

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal, Self

import openai
import verifiers.v1 as vf
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice
from pydantic import Field, model_validator
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.surrogates import has_lone_surrogate
from rollout_sandbox.told import without_credentials
from rollout_sandbox.toolbox.scoring import exempt, is_exempt, scoring_of
from verifiers.v1.clients.base import build_async_openai
from verifiers.v1.configs.client import BaseClientConfig
from verifiers.v1.types import Usage

from opencode_rubrics.answer import GivenAnswer, given_answer
from opencode_rubrics.errors import JudgeError
from opencode_rubrics.rubric import AnyTrace, Rubric, RubricConfig, note_unreadable

JUDGE_KEY = "judge"
"""Where `trace.info` says how the score of `JudgeRubric` came about."""
NONE_ON_THIS = "the judge gives no verdict on this answer, though it gives one on the reference"
_ATTEMPTS = 2
"""How often an answer is asked about, each time with the reference behind it."""

MAX_ANSWER_CHARS = 2000
"""A longer answer is not put before the judge: a part of it could agree where all of it does not."""

_CONTROL_TOKEN = re.compile(
    r"(?<=[<\[\]])(?:(?<=<)(?=[|\uff5c<]|/?[^\s<>]{1,64}>)"
    r"|(?<=\[)(?=[|>~]|\w?[~!]|/?[^\W\d]{3,64}\d{0,9}\])|(?<=\])(?=[~!<]))"
)
"""Behind the first character of what models take for the end of a message, or the beginning of another."""

_LONGEST_REPLY = 1 << 20
"""Characters; what talks longer is neither read nor put on a trace."""

_BETWEEN = r"[\W_]{0,64}"
"""Bounded, so that no line of a reply takes long."""
_INTRODUCTION = rf"(?:(?:final\s+)?(?:verdict|answer|judg(?:e)?ment)\b{_BETWEEN}(?:is\b{_BETWEEN})?)?"
_PLACEHOLDERS = ("{question}", "{reference}", "{answer}")


class JudgeOptions(RubricConfig):
    """The options of every rubric that asks a judge."""

    judge_model: str = "gpt-5-nano"
    """The judge's model name."""
    judge_client: BaseClientConfig = BaseClientConfig()
    """The judge's endpoint, any OpenAI-compatible one: `base_url`, `api_key_var`, headers."""
    judge_sampling: vf.SamplingConfig = vf.SamplingConfig()
    """Sampling of the judge's calls; what the endpoint does not know goes along as is."""
    judge_prompt: str | None = None
    """Another prompt, with `{question}`, `{reference}` and `{answer}`; it has to ask for one of the rubric's choices
    alone on the last line. `None`: the rubric's own."""
    judge_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds per attempt."""
    judge_max_retries: int = Field(4, ge=0, le=20)
    """Further attempts after a timeout, a lost connection, a 408, 409, 429 or 5xx, with growing pauses."""

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        missing = [name for name in _PLACEHOLDERS if self.judge_prompt is not None and name not in self.judge_prompt]
        if missing:
            raise ValueError(f"judge_prompt must hold {', '.join(missing)}, which are replaced in every call")
        return self


class _NoVerdict(Exception):
    """No verdict, which can be the answer's doing; the message says what came instead."""


class Judge(vf.Judge[str]):
    """verifiers' judge with a stricter verdict; `verdict_on` asks it. The call is made here, because verifiers' own
    neither tries again, nor bounds a reply, nor tells why it ended."""

    def __init__(self, options: JudgeOptions, choices: Sequence[str], prompt_file: str, name: str) -> None:
        """Take the prompt from the options, else from `prompt_file` of this package; calls are `name` on the trace."""
        super().__init__(vf.JudgeConfig(**options.judge_client.model_dump(), name=name, model=options.judge_model))
        self.prompt = options.judge_prompt or files(__package__).joinpath(prompt_file).read_text("utf-8")
        self._options = options
        self._choices = choices

    async def verdict_on(self, answer: str, question: str, reference: str, trace: AnyTrace) -> str | None:
        """The verdict on an answer, asked for twice; None if the answer keeps this judge from giving one. Calls are put
        on `trace`. A `JudgeError` if there is none on the reference, which is asked about behind each failure."""
        with scoring_of(trace).not_counted():
            for _ in range(_ATTEMPTS):
                try:
                    return await self._asked(answer, question, reference, trace)
                except _NoVerdict as failure:
                    try:
                        await self._asked(reference, question, reference, trace)
                    except _NoVerdict:
                        raise exempt(JudgeError(str(failure))) from None
        return None

    async def _asked(self, answer: str, question: str, reference: str, trace: AnyTrace) -> str:
        mark = secrets.token_hex(8)
        answer = f"[{mark}]\n{_CONTROL_TOKEN.sub(' ', answer)}\n[{mark}]"
        found = await self.evaluate(trace=trace, question=question, reference=reference, answer=answer)
        assert found.parsed is not None
        return found.parsed

    async def complete(
        self, messages: str | vf.Messages, *, trace: AnyTrace | None = None, **_: Any
    ) -> vf.JudgeResponse[str]:
        """The reply to one prompt with its verdict, recorded on `trace` whatever it says, a failure too. Without a
        verdict, a `_NoVerdict` tells an unreachable judge, a refusal, a reply that was cut off and one that cannot be
        understood apart."""
        request = {"model": self.config.model, "messages": [{"role": "user", "content": messages}]}
        try:
            completion = await self._ask(request)
            choice = completion.choices[0]
            text = (choice.message.content or "") if choice.message is not None else ""
            if len(text) > _LONGEST_REPLY:
                raise _NoVerdict(f"judge {self.config.model!r} talked for over {_LONGEST_REPLY} characters")
            response = vf.JudgeResponse[str](text=text, usage=Usage.from_openai(completion.usage))
        except Exception as error:  # whatever an endpoint can send
            if is_exempt(error):
                raise
            failure = self._described(error)
            if trace is not None:
                # As verifiers puts those that brought a reply.
                call = {"name": self.reward_name, "request": request, "error": failure}
                trace.info.setdefault("judge_calls", []).append(call)
            raise _NoVerdict(failure) from error
        if trace is not None:
            trace.record_judge_call(name=self.reward_name, request=request, response=response)
        response.parsed = self._verdict(choice, text)
        return response

    async def _ask(self, request: dict[str, Any]) -> ChatCompletion:
        options = self._options
        sampling = options.judge_sampling.model_dump(exclude_none=True)
        async with build_async_openai(self.config) as plain:
            client = plain.with_options(timeout=options.judge_timeout, max_retries=options.judge_max_retries)
            completion = await client.chat.completions.create(**request, extra_body=sampling)
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            raise _NoVerdict(f"judge {self.config.model!r} replied with something else than a chat completion")
        return completion

    def _described(self, error: Exception) -> str:
        """Return what is wrong with a call that brought no reply, and what to check."""
        judge, retries = f"judge {self.config.model!r}", f"after {self._options.judge_max_retries} retries"
        if isinstance(error, _NoVerdict):
            return str(error)
        if isinstance(error, openai.APIStatusError):
            advice = "check judge_model, judge_client and its API key"
            return f"{judge} answered {error.status_code} {retries}: {str(error)[:300]}; {advice}"
        said = f"({type(error).__name__}: {str(error)[:200]})"
        if isinstance(error, openai.OpenAIError):
            judge += f" at {without_credentials(self.config.base_url)}"
            return f"{judge} gave no reply {retries} {said}; check judge_client, or raise judge_timeout"
        return f"{judge} replied with something else than a chat completion {said}"

    def _verdict(self, choice: Choice, text: str) -> str:
        model = self.config.model
        refusal = getattr(choice.message, "refusal", None)
        if refusal or choice.finish_reason == "content_filter":
            raise _NoVerdict(f"judge {model!r} refused: {refusal or 'content filter'}; choose another judge_model")
        if (verdict := read_verdict(text, self._choices)) is not None:
            return verdict
        if choice.finish_reason == "length":
            raise _NoVerdict(f"judge {model!r} was cut off before its verdict; raise judge_sampling.max_tokens")
        known = f"{', '.join(self._choices[:-1])} or {self._choices[-1]}"
        raise _NoVerdict(f"judge {model!r} gave no verdict {known} on its last line: {text[-200:]!r}")


def read_verdict(text: str, choices: Sequence[str]) -> str | None:
    """The choice alone on the last line of a judge's reply, after any thinking; none where another line has another."""
    if "<think>" in text and "</think>" not in text:
        return None
    spelled = {choice.lower(): choice for choice in choices}
    shown = "|".join(map(re.escape, choices))
    line = re.compile(rf"{_BETWEEN}{_INTRODUCTION}({shown}){_BETWEEN}", re.IGNORECASE)
    said = [words for words in text.rpartition("</think>")[2].splitlines() if words.strip()]
    plain = [re.sub(r"\\(?:boxed|text)\s*", "", words) if "\\" in words else words for words in said]
    found = [line.fullmatch(words.strip()) for words in plain]
    named = {match[1].lower() for match in found if match}
    return spelled[named.pop()] if found and found[-1] and len(named) == 1 else None


_YES_OR_NO = {"yes": 1.0, "no": 0.0}


class JudgeRubricConfig(JudgeOptions):
    """Options of `JudgeRubric`."""

    type: Literal["judge"] = "judge"
    choices: dict[str, float] = _YES_OR_NO
    """What the judge may answer, each with the reward that it earns. Others than yes and no need a `judge_prompt`."""
    question_key: str | None = None
    """Column with the question, where the judge should not see the whole prompt, instructions and all."""
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox of the file that holds the answer, below the work directory unless it is absolute. If there
    is none, the last reply is the answer."""
    max_answer_chars: int = Field(MAX_ANSWER_CHARS, ge=1, le=1 << 18)
    """A longer answer is a 0 ("too_long"): a part of it could agree where all of it does not."""

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        words = {name.lower() for name in self.choices if name and name == name.strip()}
        if len(words) < max(2, len(self.choices)):
            raise ValueError("choices must be two or more different words, whatever their case")
        if not all(math.isfinite(value) for value in self.choices.values()):
            raise ValueError("choices must earn finite numbers")
        if self.judge_prompt is None and set(self.choices) != set(_YES_OR_NO):
            raise ValueError("choices other than yes and no need a judge_prompt that asks for them")
        return self


class JudgeRubric(Rubric[JudgeRubricConfig]):
    """Reward `judge_reward`: what the judge's choice earns; `trace.info["judge"]` says what was judged and how."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `judge` and what it is asked; a `ScoringError` if the task has no reference, or not the question."""
        reference = getattr(task, "answer", None)
        if not isinstance(reference, str) or not reference.strip():
            raise ScoringError('rubric "judge" needs a task with an answer: set the row\'s answer')
        judge = Judge(self.config, tuple(self.config.choices), "judge_question_prompt.txt", "judge")
        key = self.config.question_key
        question = task.prompt_text if key is None else getattr(task, "info", {}).get(key)
        if key is not None and not (isinstance(question, str) and question.strip()):
            raise ScoringError(f'the row has no text in column "{key}", which question_key names')
        return {"judge": judge, "question": question, "reference": reference}

    @vf.reward
    async def judge_reward(
        self, judge: Judge, question: str, reference: str, trace: AnyTrace, runtime: vf.Runtime
    ) -> float:
        """The number of the judge's choice; 0 for an answer that is missing or unusable, or on which alone the judge
        gives no verdict. A `JudgeError` if it gives none on the reference either."""
        given = _usable(await given_answer(trace, runtime, self.config.answer_path), self.config.max_answer_chars)
        record: dict[str, Any] = {"source": given.source, "reason": given.reason, "verdict": None}
        trace.info[JUDGE_KEY] = record
        if given.reason:
            return 0.0
        record["answer"] = given.text[:1000]
        try:
            verdict = await judge.verdict_on(given.text, question, reference, trace)
        except JudgeError as error:
            record["reason"] = str(error)
            raise
        record.update(verdict=verdict, reason="judged" if verdict else "no_verdict")
        if verdict is None:  # the answer's own doing: no choice of the judge's may be worth less
            note_unreadable(trace, "judge", NONE_ON_THIS)
            return min(0.0, *self.config.choices.values())
        return self.config.choices[verdict]


def _usable(given: GivenAnswer, max_chars: int) -> GivenAnswer:
    """The answer as the judge may see it, or why it may not."""
    text = given.text.strip()
    if given.source == "reply" and not given.reason:
        if "<think>" in text and "</think>" not in text:
            return GivenAnswer("reply", reason="unfinished_thinking")
        text = text.rpartition("</think>")[2].strip()
    if given.reason or not text:
        return GivenAnswer(given.source, reason=given.reason or "empty")
    if len(text) > max_chars or has_lone_surrogate(text):
        return GivenAnswer(given.source, reason="too_long" if len(text) > max_chars else "half_character")
    return GivenAnswer(given.source, text)
