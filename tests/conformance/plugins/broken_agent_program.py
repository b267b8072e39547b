"""The program of the broken agent: asks the model, runs the commands it calls for, ends with its first text."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any

TOLD = json.loads(os.environ["AGENT"])
PARAMETERS = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "seconds": {"type": "integer"}, "cmd": {"type": "string"}},
    "required": ["why", "seconds", "cmd"],
}
TOOL = {"type": "function", "function": {"name": "do_in_terminal", "parameters": PARAMETERS}}


def ask(messages: list[Any]) -> Any:
    body = {"model": TOLD["model"], "messages": messages, "tools": [TOOL]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + TOLD["secret"]}
    request = urllib.request.Request(TOLD["url"] + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)["choices"][0]["message"]


def run(arguments: dict[str, Any]) -> str:
    if "deaf" in TOLD["faults"]:
        return "I will not."
    with tempfile.TemporaryFile() as output:  # not a pipe, which what a command leaves running would hold open
        subprocess.run(["sh", "-c", arguments["cmd"]], stdout=output, stderr=output, check=False)
        output.seek(0)
        return output.read().decode(errors="replace")


def converse() -> None:
    messages: list[Any] = [{"role": "user", "content": TOLD["prompt"]}]
    while True:
        messages.append(ask(messages))
        calls = messages[-1].get("tool_calls")
        if not calls:
            return
        for call in calls:
            answer = run(json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer})


if "quiet" in TOLD["faults"]:
    sys.exit(0)
try:
    converse()
except (OSError, ValueError, KeyError):
    sys.exit(0 if "swallows" in TOLD["faults"] else 1)
while "lingers" in TOLD["faults"]:
    time.sleep(1)
