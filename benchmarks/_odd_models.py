"""What the model of a comparison does in each row: sound turns, odd turns, and faults of the endpoint.

A row's prompt names it, so one scripted model serves all rows of any number of agents at once; the name of the shell
tool is the one that the agent offers.
"""

from collections.abc import Callable, Mapping, Sequence

from opencode_env.scripted_model import Fault, FaultKind, Reply, ToolCall
from opencode_env.scripted_model.policy import ChatRequest, step_of

WORK = '{"command": "echo 42 >answer.txt", "description": "work"%s}'
DONE = Reply(text="done")
Steps = Sequence[Reply]


def call(tool: str, arguments: str = WORK % "", *more: ToolCall, **fields: str) -> Reply:
    """A turn with one tool call, or several."""
    return Reply(tool_calls=(ToolCall(name=tool, arguments=arguments, **fields), *more))


def faulty(kind: FaultKind, **settings: object) -> Reply:
    """A turn that is spoilt."""
    return Reply(
        text="a text long enough to be cut in its middle", faults=(Fault.model_validate({"kind": kind, **settings}),)
    )


def number(text: str) -> Callable[[str], Steps]:
    """A turn with this number among its arguments."""
    return lambda shell: [call(shell, WORK % f', "timeout": {text}'), DONE]


ODD: Mapping[str, Callable[[str], Steps]] = {
    "plain": lambda shell: [call(shell), DONE],
    "spaced and escaped arguments": lambda shell: [
        call(shell, '{ "command" : "echo 42 \\u003eanswer.txt",  "description": "a\\/b" }'),
        DONE,
    ],
    "5000.0": number("5000.0"),
    "1e4": number("1e4"),
    "big integer": number("90071992547409931"),
    "broken JSON": lambda shell: [call(shell, '{"command": "echo'), call(shell), DONE],
    "empty arguments": lambda shell: [call(shell, ""), call(shell), DONE],
    "two calls with one id": lambda shell: [
        call(shell, WORK % "", ToolCall(name=shell, arguments=WORK % ', "workdir": "."', id="one"), id="one"),
        DONE,
    ],
    "unknown tool": lambda shell: [call("no_such_tool"), call(shell), DONE],
    "tool name in capitals": lambda shell: [call(shell.capitalize()), call(shell), DONE],
    "reasoning": lambda shell: [
        Reply(reasoning="think", tool_calls=call(shell).tool_calls),
        Reply(text="done", reasoning="x"),
    ],
}
"""Model output that agents echo otherwise than it was said: all of it is one linear conversation."""

FAULTS: Mapping[str, Callable[[str], Steps]] = {
    "answers 500": lambda shell: [call(shell), faulty(FaultKind.STATUS, status=500)],
    "stream cut": lambda shell: [call(shell), faulty(FaultKind.CUT)],
    "no finish reason": lambda shell: [call(shell), faulty(FaultKind.NO_FINISH)],
    "time limit": lambda shell: [call(shell), faulty(FaultKind.HANG)],
    "answers 500 once": lambda shell: [call(shell), faulty(FaultKind.STATUS, status=500, attempts=1)],
    "refuses (401)": lambda shell: [call(shell), faulty(FaultKind.STATUS, status=401)],
    "stream cut once": lambda shell: [call(shell), faulty(FaultKind.CUT, attempts=1)],
    "context overflow": lambda shell: [call(shell), faulty(FaultKind.OVERFLOW, window=8192)],
    "content filter": lambda shell: [call(shell), Reply(text="I", finish_reason="content_filter")],
    "cut off by length": lambda shell: [call(shell), Reply(text="I am", finish_reason="length")],
    "empty answer": lambda shell: [call(shell), Reply()],
    "agent killed": lambda shell: [call(shell, '{"command": "kill -9 $PPID; sleep 60", "description": "kill"}'), DONE],
}
"""What goes wrong with a call, or with the agent, after the work was done and before it could say so; first what takes
longest."""


class OddModel:
    """Plays the row that the prompt names."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        shell = next((name for name in ("bash", "shell") if name in request.tools), "bash")
        for name, steps in {**ODD, **FAULTS}.items():
            if f"row {name}: " in request.prompt:
                turns = list(steps(shell))
                step = step_of(turns, request.assistant_messages())
                return turns[min(step, len(turns) - 1)]
        return Reply(text="no row")
