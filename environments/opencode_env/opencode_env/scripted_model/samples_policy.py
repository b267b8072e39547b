"""Solves, or plausibly fails, the shipped sample tasks with OpenCode's own tools, as `samples/solutions.toml` says."""

import hashlib
import re
import tomllib
from collections import Counter, OrderedDict

from pydantic import BaseModel, ConfigDict, TypeAdapter

from opencode_env.samples import SAMPLES_PATH, Sample, load_samples
from opencode_env.scripted_model.policy import ChatRequest, Reply, Script


class Solution(BaseModel):
    """Two ways to go through one sample task: one that solves it and a plausible one that does not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    solve: tuple[Reply, ...]
    fail: tuple[Reply, ...]


def load_solutions() -> dict[str, Solution]:
    """The shipped solutions, by the id of the sample."""
    text = SAMPLES_PATH.with_name("solutions.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Solution]).validate_python(tomllib.loads(text))


_REMEMBERED_ROLLOUTS = 100_000
_CALL_ID = re.compile(r"call_(?P<task>.+)_(?P<rollout>\d+)_\d+_\d+")


def coin(seed: int, task_id: str, rollout: int) -> float:
    """A number in [0, 1) made of its arguments alone; a rollout solves its task when it is below the rate."""
    digest = hashlib.sha256(f"{seed}\0{task_id}\0{rollout}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


class SamplesPolicy:
    """The default policy: plays the `solutions` of sample tasks, and for any other prompt says what it is.

    Reproducibility: the rollouts of a task are numbered 0, 1, 2, … in the order in which their first requests
    arrive at this policy object, and number n solves its task exactly when `coin(seed, task_id, n) < rate`. So a
    fresh policy with the same seed and rate gives the same sequence of outcomes per task, however tasks are
    mixed and whatever runs beside them; of concurrent rollouts of one task the set of outcomes is fixed, and which
    of them gets which follows the order of arrival. Session ids are random in every run, so they take no part in
    the coin: they only tell a retry of a first request from a new rollout (without the header it counts as a new
    one). Later turns carry the number in their tool-call ids, so they survive a restart of the server.

    Args:
        success_rate: share of rollouts that solve their task.
        seed: another seed, other outcomes.

    Raises:
        ValueError: a rate outside 0…1.
    """

    def __init__(self, success_rate: float = 0.7, seed: int = 0) -> None:
        if not 0 <= success_rate <= 1:
            raise ValueError(f"the success rate must be from 0 to 1, not {success_rate}")
        self.samples = load_samples()
        self.solutions = load_solutions()
        self.success_rate = success_rate
        self.seed = seed
        self._arrivals: Counter[str] = Counter()
        self._sessions: OrderedDict[tuple[str, str], int] = OrderedDict()

    def solves(self, task_id: str, rollout: int) -> bool:
        """Whether the rollout with this number (from 0) solves the task."""
        return coin(self.seed, task_id, rollout) < self.success_rate

    def __call__(self, request: ChatRequest, /) -> Reply:
        texts = request.user_texts
        sample = next((one for one in self.samples if any(one.question.strip() in text for text in texts)), None)
        if sample is None:
            return Reply(text="I am a scripted model, not a language model, and have no script for this prompt.")
        if not request.tools:
            return Reply(text=f"Sample task {sample.id}")
        rollout = self._rollout_of(request, sample)
        solution = self.solutions[sample.id]
        reply = Script(steps=solution.solve if self.solves(sample.id, rollout) else solution.fail).reply(request)
        if missing := {call.name for call in reply.tool_calls} - set(request.tools):
            return Reply(text=f"I am a scripted model and cannot go on without: {', '.join(sorted(missing))}.")
        calls = (
            call.model_copy(update={"id": f"call_{sample.id}_{rollout}_{request.turn}_{index}"})
            for index, call in enumerate(reply.tool_calls)
        )
        return reply.model_copy(update={"tool_calls": tuple(calls)})

    def _rollout_of(self, request: ChatRequest, sample: Sample) -> int:
        for message in request.assistant_messages():
            for call in message.tool_calls or ():
                found = _CALL_ID.fullmatch(call.id)
                if found and found["task"] == sample.id:
                    return int(found["rollout"])
        if request.session_id is None:
            return self._arrive(sample)
        key = (sample.id, request.session_id)
        if key not in self._sessions:
            self._sessions[key] = self._arrive(sample)
            if len(self._sessions) > _REMEMBERED_ROLLOUTS:
                self._sessions.popitem(last=False)
        return self._sessions[key]

    def _arrive(self, sample: Sample) -> int:
        self._arrivals[sample.id] += 1
        return self._arrivals[sample.id] - 1
