"""What an environment sees of OpenCode, in 0.1 s: its model calls, their headers, tools, MCP, sessions, log.

Python's standard library only, from 3.9 on. It runs one command after the other, sends a failed call again only where
its `SENDS` are more, and has no pictures, sub-agents or permissions. Beside opencode-rlm's files its `llm_subcall` and
`task` ask the sub model.

Run: opencode run [--session ID] …, with the prompt on standard input
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

STATE = Path(os.environ["OPENCODE_ENV_STATE"]) if "OPENCODE_ENV_STATE" in os.environ else Path.cwd()
STORE = STATE / "data/opencode/opencode.db"
GO_ON = "opencode-env: go on"
"""The prompt with which a conversation goes on from a kept turn, and nobody says anything."""
MARK = f"{os.environ.pop('OPENCODE_ENV_CODE', '')}:{uuid.uuid4()}"
FILE_TOOLS = {
    "read": ["filePath"],
    "write": ["content", "filePath"],
    "edit": ["filePath", "oldString", "newString"],
    "grep": ["pattern"],
    "glob": ["pattern"],
}
"""Those of OpenCode's that the solutions of the samples use, with the arguments that they must have."""
NEVER_USED = {"skill": ["name"], "todowrite": ["todos"], "webfetch": ["url"]}
"""Those that it offers and does not have, as each tool that is offered has a metric."""
SENDS = 1
"""How often it sends a call that fails for now; OpenCode sends six times."""


class Failed(Exception):
    """A model call that came to nothing."""


class FailedForNow(Failed):
    """A model call that may be answered when it is sent again."""


MAIN_ROLE, SUB_ROLE = {"X-RLM-Role": "main"}, {"X-RLM-Role": "sub"}
Json = dict[str, Any]


def offered(name: str, required: list[str], *further: str) -> Json:
    """A tool whose arguments are texts."""
    texts = {key: {"type": "string"} for key in (*required, *further)}
    return {"name": name, "parameters": {"type": "object", "properties": texts, "required": required}}


def post(
    url: str, body: Json, headers: Mapping[str, str], seconds: float
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """A connection on which a request was sent, and the head of its answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    return connection, connection.getresponse()


def events(response: http.client.HTTPResponse) -> Iterator[Json]:
    """The JSON of each event of a stream."""
    for line in response:
        if line.startswith(b"data:") and line[5:].strip() not in (b"", b"[DONE]"):
            yield json.loads(line[5:])


class Server:
    """An MCP server, over HTTP."""

    def __init__(self, name: str, config: Json) -> None:
        self.prefix = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        self.config, self.number = config, 0
        self.headers = {"Accept": "application/json, text/event-stream", **config["headers"]}
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "light", "version": "1"}}
        self.ask("initialize", client)
        self.ask("notifications/initialized")
        self.tools = {f"{self.prefix}_{tool['name']}": tool for tool in self.ask("tools/list", {})["tools"]}

    def ask(self, method: str, params: Json | None = None) -> Any:
        """The result of a request; nothing is awaited of a notification, which has no parameters."""
        self.number += 1
        body: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            body.update(id=self.number, params=params)
        connection, response = post(self.config["url"], body, self.headers, self.config["timeout"] / 1000)
        try:
            if session := response.getheader("mcp-session-id"):
                self.headers["mcp-session-id"] = session
            if params is None:
                return response.read()
            is_stream = "event-stream" in response.getheader("content-type", "")
            answer = next(one for one in events(response) if "id" in one) if is_stream else json.load(response)
            if "error" in answer:
                raise OSError(answer["error"]["message"])
            return answer["result"]
        finally:
            connection.close()

    def call(self, name: str, arguments: Json) -> str:
        """The text of a tool's answer."""
        result = self.ask("tools/call", {"name": self.tools[name]["name"], "arguments": arguments})
        return "\n\n".join(part["text"] for part in result["content"] if part["type"] == "text")


class Session:
    """One conversation, which its store outlives."""

    def __init__(self, config: Json, workdir: str, session: str | None) -> None:
        self.id = session or f"ses_{uuid.uuid4().hex}"
        self.workdir = workdir
        _, _, self.model = config["model"].partition("/")
        (provider,) = config["provider"].values()
        self.options = provider["options"]
        self.repeats = config["plugin"][0][1]["repeats"]
        system = f"You are a light agent in {workdir}."
        if append := json.loads((STATE / "plugin.json").read_text())["append"]:
            system += f"\n{append}"
        begun: list[Json] = [{"role": "system", "content": system}]
        self.messages: list[Json] = json.loads(STORE.read_text()) if session else begun
        self.servers = [Server(name, one) for name, one in config["mcp"].items()]
        mcp = [
            {"name": name, "description": tool.get("description") or "", "parameters": tool["inputSchema"]}
            for server in self.servers
            for name, tool in server.tools.items()
        ]
        bash = {**offered("bash", ["command"], "description"), "description": "Run a command."}
        files = [offered(name, named) for name, named in {**FILE_TOOLS, **NEVER_USED}.items()]
        self.tools = [{"type": "function", "function": one} for one in (bash, *files, *mcp)]

    def speak(self, prompt: str) -> None:
        """Go on until the model calls no tool any more."""
        if prompt.strip() != GO_ON:
            self.messages.append({"role": "user", "content": prompt})
        while calls := self.answer().get("tool_calls"):
            for call in calls:
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.result(call)})
        self.store()

    def tell(self, kind: str, **fields: Any) -> None:
        """Write an event of the log."""
        print(json.dumps({"type": kind, "sessionID": self.id, **fields}, separators=(",", ":")), flush=True)

    def store(self) -> None:
        """Leave the conversation to who goes on with it, from a kept turn as well."""
        STORE.parent.mkdir(parents=True, exist_ok=True)
        STORE.write_text(json.dumps(self.messages))

    def answer(self) -> Json:
        """The model's next message."""
        self.store()
        self.tell("step_start")
        headers = {"x-session-id": self.id, "X-Agent-Mark": MARK}
        headers.update(MAIN_ROLE if (STATE / "rlm.json").exists() else {})
        headers.update({"Idempotency-Key": f"{uuid.uuid4()}:build"} if self.repeats else {})
        message = self.ask(headers, messages=self.messages, tools=self.tools, tool_choice="auto", max_tokens=32_000)
        self.messages.append(message)
        return message

    def ask(self, headers: Mapping[str, str], **fields: Any) -> Json:
        """A model's whole answer."""
        for _ in range(SENDS - 1):
            try:
                return self.send(headers, **fields)
            except FailedForNow:
                time.sleep(0.1)
        return self.send(headers, **fields)

    def send(self, headers: Mapping[str, str], **fields: Any) -> Json:
        """The answer to one request."""
        headers = {"Authorization": f"Bearer {self.options['apiKey']}", **headers}
        body = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}, **fields}
        url, seconds = f"{self.options['baseURL']}/chat/completions", self.options["timeout"] / 1000
        try:
            connection, response = post(url, body, headers, seconds)
            if response.status != 200:
                failure = FailedForNow if response.status >= 500 else Failed
                raise failure(f"{response.status}: {response.read(2000)!r}")
            message, ended = read_answer(response)
        except (OSError, http.client.HTTPException) as error:
            raise FailedForNow(str(error)) from error
        connection.close()
        if not ended:
            raise FailedForNow("the answer was cut off")
        return message

    def ask_sub_model(self, prompts: list[str]) -> str:
        """What the sub model answers, line by line."""
        said = []
        for prompt in prompts:
            try:
                said.append(self.ask(SUB_ROLE, messages=[{"role": "user", "content": prompt}])["content"])
            except Failed as error:
                said.append(f"error: {error}")
        return "\n".join(said)

    def result(self, call: Json) -> str:
        """What a tool says."""
        name = call["function"]["name"]
        try:
            arguments = json.loads(call["function"]["arguments"])
            if name == "bash":
                return self.run(arguments["command"])
            if name in FILE_TOOLS:
                return self.work_on_files(name, arguments)
            if name in ("llm_subcall", "task"):
                return self.ask_sub_model(arguments.get("prompts") or [arguments["prompt"]])
            for server in self.servers:
                if name in server.tools:
                    return server.call(name, arguments)
            return f"unavailable tool {name}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"Error: {error}"

    def work_on_files(self, name: str, arguments: Json) -> str:
        """What a tool for files says."""
        if name == "grep":
            return self.run(f"grep -rnE -e {shlex.quote(arguments['pattern'])} .")
        if name == "glob":
            return "\n".join(map(str, Path(self.workdir).glob(arguments["pattern"])))
        path = Path(self.workdir, arguments["filePath"])
        if name == "read":
            return path.read_text()
        text = arguments.get("content", "")
        if name == "edit":
            before, old = path.read_text(), arguments["oldString"]
            if old not in before:
                return "Error: oldString is not in the file"
            text = before.replace(old, arguments["newString"], -1 if arguments.get("replaceAll") else 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return "Done."

    def run(self, command: str) -> str:
        """What a shell command prints."""
        hidden = ("GIT_ALLOW_PROTOCOL", "GIT_NO_LAZY_FETCH")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("BUN_", *hidden))}
        # Into a file, as what a command leaves in the background would hold a pipe open.
        with open(STATE / "tmp" / uuid.uuid4().hex, "w+b") as output:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            env = {**variables, "HOME": str(STATE / "home")}
            subprocess.run(["bash", "-c", command], cwd=self.workdir, env=env, check=False, **streams)
            output.seek(0)
            return output.read(50_000).decode(errors="replace")


def read_answer(response: http.client.HTTPResponse) -> tuple[Json, bool]:
    """The message of a streamed answer, and whether it was whole."""
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    ended = False
    for event in events(response):
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            message["content"] += delta.get("content") or ""
            if thought := delta.get("reasoning_content"):
                message["reasoning_content"] = message.get("reasoning_content", "") + thought
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                call.update({"id": part["id"]} if part.get("id") else {})
                for key, text in part.get("function", {}).items():
                    call["function"][key] += text or ""
            ended = ended or bool(choice.get("finish_reason"))
    return (message | {"tool_calls": list(calls.values())} if calls else message), ended


def main() -> int:
    if sys.argv[1] != "run":  # the program that mends the real store between two segments
        return 0
    words = sys.argv[2:]
    options = {word: words[number] for number, word in enumerate(words[:-1], 1)}
    text = (STATE / "config/opencode/opencode.json").read_text()
    config = json.loads(text.replace("{env:OPENCODE_ENV_STATE}", str(STATE)))
    session = Session(config, options["--dir"], options.get("--session"))
    try:
        session.speak(sys.stdin.read())
    except Failed as error:
        session.tell("error", error={"name": "APIError", "data": {"message": str(error)}})
        return 1
    session.tell("text", part={"text": session.messages[-1]["content"]})
    return 0


sys.exit(main())
