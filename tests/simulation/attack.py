"""The attack of `test_hostile_agent.py`; Python's standard library only. Prints what it tried and what it reached."""

import glob
import json
import os
import re
import socket
import stat
import urllib.error
import urllib.request


def content(path: str) -> str:
    with open(path, "rb") as file:
        return file.read().decode(errors="replace")


CONFIGS = [*glob.glob("/tmp/**/*.json", recursive=True), *glob.glob("/home/**/*.json", recursive=True)]
REPORT: dict[str, list[str]] = {"tried": [], "reached": [], "sockets": [], "secrets": [], "ports": [], "own move": []}


def tool_url() -> str:
    texts = [content(path) for path in CONFIGS]
    texts += [content(path) for path in glob.glob("/proc/[0-9]*/environ") if os.access(path, os.R_OK)]
    for text in texts:
        found = re.search(r'http://[^"\\\s]+/mcp[^"\\\s]*', text)
        if found:
            return str(found.group(0)).replace("\\u0026", "&")
    raise SystemExit("no tool URL")


def post(url: str, body: object, method: str = "POST") -> str:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    request = urllib.request.Request(
        url, json.dumps(body).encode() if body is not None else None, headers, method=method
    )
    try:
        return str(urllib.request.urlopen(request, timeout=20).read().decode())
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode(errors='replace')}"
    except OSError as error:
        return f"error {error}"


def call(tool: str, number: object, **arguments: object) -> dict[str, object]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def move(url: str, direction: str, number: object) -> str:
    return post(url, call("move", number, direction=direction))


URL = tool_url()
REPORT["own move"] = re.findall(r"You are in (row . column .|row ., column .)", move(URL, "right", "attack"))

base, _, query = URL.partition("?")
root = base[: -len("/mcp")]
others = [base, f"{base}?vf_state_route=other"]
if query:
    fields = dict(part.split("=", 1) for part in query.split("&"))
    for route in ("", "0", "a", "b", "*", fields["vf_state_route"][::-1]):
        changed = {**fields, "vf_state_route": route}
        others.append(base + "?" + "&".join(f"{name}={value}" for name, value in changed.items()))
    others.append(f"{URL}&vf_state_route=b")
    others.append(base + "?" + query.replace(fields["vf_state_signature"], "0" * len(fields["vf_state_signature"])))
else:
    others = []  # a server of the rollout's own: whatever the query, it is the agent's one world
for number, url in enumerate(others):
    answer = move(url, "down", f"other-{number}")
    REPORT["tried"].append("world")
    if "You are in" in answer:
        REPORT["reached"].append(url)

for port in range(1, 65536):  # of all rollouts' servers on this machine, and of whatever else listens
    with socket.socket() as probe:
        probe.settimeout(1)
        if f":{port}/" in URL or probe.connect_ex(("127.0.0.1", port)) != 0:
            continue
    REPORT["ports"].append(str(port))
    if "You are in" in move(f"http://127.0.0.1:{port}/mcp?{query}", "down", f"port-{port}"):
        REPORT["reached"].append(f"port {port}")

for name in ("", "state", "task", "ledger", "reward", "reset", "close", "control", "control/reward", "mcp/reset"):
    path = f"/{name}"
    for method, body in (("GET", None), ("POST", {}), ("PUT", {"reward": 1})):
        REPORT["tried"].append(path)
        answer = post(root + path, body, method)
        if not answer.startswith(("404", "405", "error")):
            REPORT["reached"].append(f"{method} {path}: {answer[:80]}")

for name in ("reset", "close", "step", "finish", "seed"):
    asked = call(name, name, seed=1)
    for sent in (asked, {**asked, "method": f"world/{name}"}):
        REPORT["tried"].append(name)
        answer = post(URL, sent)
        if "Unknown tool" not in answer and "error" not in answer.lower():
            REPORT["reached"].append(f"{name}: {answer[:80]}")

for folder in ("/tmp", "/var/tmp", "/run", "/home", "/app", "/dev/shm"):
    for path in glob.glob(f"{folder}/**", recursive=True):
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode) and "worlds-" in path:
                REPORT["sockets"].append(path)
        except OSError:
            pass
for line in content("/proc/net/unix").splitlines():
    if "worlds-" in line:
        REPORT["sockets"].append(line.strip())
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        if "VF_STATE_SECRET" in content(path):
            REPORT["secrets"].append(path)
    except OSError:
        pass

print(json.dumps(REPORT))
