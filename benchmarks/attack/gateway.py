"""Attacks on the path to the model, which one process serves for all rollouts."""

import http.client
import json
import os
import socket
from collections.abc import Iterator

from benchmarks.attack.children import Tell, in_children
from benchmarks.attack.tally import Tally

CONNECTIONS = 1500
"""Of each of two processes."""


def _endpoint() -> tuple[str, int, str, str]:
    """Host, port, path and secret of the rollout's way to its model, from OpenCode's own configuration."""
    with open(os.environ["OPENCODE_ENV_STATE"] + "/config/opencode/opencode.json") as file:
        config = json.load(file)
    (provider,) = config["provider"].values()
    url, secret = provider["options"]["baseURL"], provider["options"]["apiKey"]
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    return host, int(port or 80), "/" + path, secret


def connections(tally: Tally) -> None:
    """Connections to the path to the model, each with half a request, by two processes; opened again when closed."""
    host, port, path, _ = _endpoint()
    half = f"POST {path}/chat/completions HTTP/1.1\r\nHost: x\r\n".encode()

    def hold(tell: Tell) -> None:
        held: list[socket.socket] = []
        while True:
            try:
                for _ in range(50):
                    if len(held) < CONNECTIONS:
                        held.append(socket.create_connection((host, port), timeout=5))
                        held[-1].sendall(half)
                        held[-1].setblocking(False)
                error: object = ""
            except OSError as refused:
                error = refused
            still = [one for one in held if _open(one)]
            tell(len(still), error or ("closed" if len(still) < len(held) else ""))
            held = still

    in_children(tally, 2, hold)


def _open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1024))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _bodies() -> Iterator[tuple[bytes, int]]:
    """Request bodies, each with how many times over a bound it is: 5,000 messages, 100,000 values, 100 levels."""
    message = b'{"role":"user","content":"x"}'
    head = b'{"model":"m","messages":['
    while True:
        yield head + b",".join([message] * 32_000) + b"]}", 6
        yield head + b",".join([message] * 50_000) + b"]}", 10
        yield head + message + b'],"x":[' + b",".join([b"[]"] * 2_000_000) + b"]}", 20
        yield head + message + b'],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 1000


def requests(tally: Tally) -> None:
    """Big requests, two at a time: many messages, many values, deep nesting. Held: the bounds of the largest taken."""
    host, port, path, secret = _endpoint()

    def send(tell: Tell) -> None:
        for body, bounds in _bodies():
            try:
                line = http.client.HTTPConnection(host, port, timeout=60)
                headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
                line.request("POST", f"{path}/chat/completions", body, headers)
                answer = line.getresponse()
                said = answer.read(100).decode(errors="replace")
                line.close()
                taken = answer.status == 200
                tell(bounds if taken else 0, "" if taken else f"{answer.status} {said}")
            except (OSError, http.client.HTTPException) as error:
                tell(0, repr(error))

    in_children(tally, 2, send)
