"""A program that speaks MCP in its own way, without any package: long answers, ids at the end, and other prints.

`rude_server.py [--ids-last]`; its tools are `long` (size), `chatter` (lines), `leave`.
"""

import json
import os
import sys
from typing import Any

IDS_LAST = "--ids-last" in sys.argv
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("long", "chatter", "leave")]


def answer(method: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request, or None for one that is not known."""
    if method == "initialize":
        info = {"name": "rude", "version": "1"}
        return {"protocolVersion": parameters["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method != "tools/call":
        return None
    arguments = parameters["arguments"]
    for number in range(arguments.get("lines", 0)):
        print(f"line {number} of what is not a message", "{" * 1000)
    return {"content": [{"type": "text", "text": "x" * arguments.get("size", 1)}]}


print("Welcome!\n{not JSON}\n")
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params", {}))
    body = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
    head = {"jsonrpc": "2.0", "id": request["id"]}
    print(json.dumps(body | head if IDS_LAST else head | body), flush=True)
    if request.get("params", {}).get("name") == "leave":
        os._exit(0)
