"""The same rollouts without OpenCode: a function in place of agent, sandbox, interception, client and scoring.

It knows the one command that answers. What the model is given between its answers comes from the recorded rollout.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from opencode_env.trainable.samples import TrainingSample

from examples.learn.curriculum import ANSWER_FILE, Problem
from examples.learn.model import Spoken
from examples.learn.rollouts import Rollout
from examples.learn.transcript import Transcript

_ANSWER = re.compile(
    r'<tool_call>\n\{"name": "bash", "arguments": \{"command": "(?:: \w+ ; )?printf (\w+) > ' + re.escape(ANSWER_FILE)
)


def play_bare(
    speak: Callable[[Sequence[Sequence[int]]], list[Spoken]],
    transcript: Transcript,
    tokenizer: Any,
    problems: Sequence[tuple[str, Problem]],
) -> list[Rollout]:
    """One rollout of each problem, with the name of its group."""
    tokens = [list[int]() for _ in problems]
    masks = [list[bool]() for _ in problems]
    logprobs = [list[float]() for _ in problems]
    written = ["" for _ in problems]
    going = list(range(len(problems)))
    for turn in range(len(transcript.given)):
        for row in going:
            text = transcript.filled(problems[row][1].question, written[row]).given[turn]
            given = tokenizer.encode(text, add_special_tokens=False)
            tokens[row] += given
            masks[row] += [False] * len(given)
            logprobs[row] += [0.0] * len(given)
        for row, spoken in zip(list(going), speak([tokens[row] for row in going]), strict=True):
            tokens[row] += spoken.tokens
            masks[row] += [True] * len(spoken.tokens)
            logprobs[row] += spoken.logprobs
            if found := _ANSWER.match(tokenizer.decode(spoken.tokens)):
                written[row] = found[1]
            else:
                going.remove(row)
        if not going:
            break
    return [
        Rollout(
            group,
            problem.reward(written[row]),
            [TrainingSample(0, (), (), tokens[row], masks[row], logprobs[row])],
            derived=problem.reward(written[row]),
        )
        for row, (group, problem) in enumerate(problems)
    ]
