"""Calls that work, and conversations that no serialiser writes."""

import base64
from itertools import chain
from typing import Any

from tests.support.families import Family
from tests.support.sizes import size
from tests.support.token_engine import Says

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture."""
AT_ONCE = size(3, 1)
"""Hostile calls in an answer: each step of OpenCode's costs."""


def bash(family: Family, command: str, **more: Any) -> str:
    """A call that works."""
    return family.call("bash", {"command": command, "description": "a command", **more})


def hostile(family: Family) -> list[Says]:
    """What no serialiser writes, what cannot run, and what is not a call at all; OpenCode rewrites nearly all of it."""
    spelled = [
        '{ "description" : "d",\n"command":"echo \\u0061\\/", "timeout": 5000.0, "2": 1, "1": 2 }',
        '{"command": "echo first", "command": "echo b", "description": "d", "x": 1e400, "y": -0}',
        *["", "null", "[1]", '"x"', "{", '{"command": NaN}', '{"command": "a\nb"}', '{"__proto__": {"a": 1}}'],
        '{"command": "echo c", "description": "d", "x": 12345678901234567890, "z": "\\ud83d"}',
    ]
    calls = [[family.call("bash", arguments)] for arguments in spelled]
    calls += [
        [bash(family, "echo d").replace("bash", name, 1)] for name in ("nothing", "Bash", " bash ", "invalid", "")
    ]
    calls += [["<tool_call></tool_call>"], ["<tool_call>5</tool_call>"], ["<tool_call>bash</tool_call>"]]
    calls += [['<tool_call>{"name": ["bash"], "arguments": {}}</tool_call>']]
    calls += [[bash(family, "echo e", timeout=59999.0), family.call("bash", "{"), bash(family, "echo e")]]
    answers = [chain(*calls[start : start + AT_ONCE]) for start in range(0, len(calls), AT_ONCE)]
    return [Says(family.answer("So", *some, reasoning="Hm.")) for some in answers]
