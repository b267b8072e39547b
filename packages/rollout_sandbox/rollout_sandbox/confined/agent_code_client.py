"""The command `run-agent-code` inside the confined sandbox; its use is written in the rubrics' `run_agent_code.sh`.

What is printed and written to the status file is data about the program, and the exit code is not: 0
whatever the program did, 125 when nothing could be run.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

NOT_RUN = 125
_HERE = Path(__file__).parent
_SHARED = "/run/agent-code"
_LENGTH_BYTES = 8


def _ask(request: object) -> dict[str, str]:
    data = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(_HERE / "socket"))
        connection.sendall(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        with connection.makefile("rb") as answer:
            head = answer.read(_LENGTH_BYTES)
            body = answer.read(int.from_bytes(head, "big"))
    if len(head) < _LENGTH_BYTES or len(body) < int.from_bytes(head, "big"):
        raise OSError("the host closed the connection")
    reply: dict[str, str] = json.loads(body)
    return reply


def main() -> int:
    parser = argparse.ArgumentParser("run-agent-code", description="Run agent code apart from this command.")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--max-output", type=int, default=1 << 20, metavar="BYTES")
    parser.add_argument("--stdin", type=Path, metavar="FILE")
    parser.add_argument("--status", type=Path, metavar="FILE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    argv = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        stdin = options.stdin.read_bytes().decode(errors="surrogateescape") if options.stdin else ""
        request = {"argv": argv, "cwd": os.getcwd(), "timeout": options.timeout, "max_output": options.max_output}
        reply = _ask({**request, "stdin": stdin})
    except (OSError, ValueError) as error:
        reply = {"refused": str(error)}
    os.spawnvp(os.P_WAIT, "sh", ["sh", str(_HERE / "drop-links"), _SHARED, "/run", "/logs", f"{_SHARED}/"])
    if "refused" in reply:
        sys.stderr.write(f"run-agent-code: {reply['refused']}\n")
        return NOT_RUN
    if options.status:
        options.status.write_text(reply["status"] + "\n")
    sys.stderr.write(reply["err"])
    sys.stdout.write(reply["out"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
