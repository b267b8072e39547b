"""A chat endpoint whose replies are written in the prompt: `task=NAME plan=right,wrong,error`.

Each request takes the next word of its task's plan, counted per model, so a run's outcomes are exact.
`error` answers 400, `hang` answers after the agent's time is over, every other word is the reply.
"""

import json
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PlanServer(ThreadingHTTPServer):
    """Serves on a free port of the loopback interface; `url` is the base URL of the API."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, hang_seconds: float) -> None:
        self.hang_seconds = hang_seconds
        super().__init__(("127.0.0.1", 0), PlanHandler)
        self.served: Counter[tuple[str, str]] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def next_word(self, model: str, prompt: str) -> str:
        found = re.search(r"task=(\S+) plan=(\S+)", prompt)
        assert found is not None, prompt
        words = found[2].split(",")
        with self.lock:
            turn = self.served[model, found[1]]
            self.served[model, found[1]] += 1
        return words[turn % len(words)]


class PlanHandler(BaseHTTPRequestHandler):
    server: PlanServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        word = self.server.next_word(body["model"], body["messages"][-1]["content"])
        if word == "hang":
            time.sleep(self.server.hang_seconds)
        if word == "error":
            self._answer(400, {"error": {"message": "planned error", "type": "planned"}})
            return
        self._answer(
            200,
            {
                "id": "chatcmpl-plan",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [{"index": 0, "message": {"role": "assistant", "content": word}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
            },
        )

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # the agent whose time was over has gone

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test output to the tests."""
