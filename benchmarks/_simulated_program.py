"""An agent's program for a local sandbox: sends recorded requests to the model, as `_simulated_agents.py` does.

Run: python3 program.py NUMBER ROUND URL SECRET, beside `bodies.json`
"""

import http.client
import json
import random
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

START_SECONDS = 4.0
SHORT_TURNS = 4


def main() -> None:
    """Play the agent; exits 1 when a call fails."""
    number, round_name, url, secret = sys.argv[1:]
    time.sleep(random.Random(int(number)).uniform(0, START_SECONDS))
    bodies = json.loads(Path(__file__).with_name("bodies.json").read_text())
    parts = urlsplit(url)
    http_client = http.client.HTTPConnection(parts.hostname or "", parts.port)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json", "x-session-id": "ses_1"}
    for body in bodies[:SHORT_TURNS] if round_name == "short" else bodies:
        key = {"Idempotency-Key": f"{uuid.uuid4()}:build"}
        http_client.request("POST", f"{parts.path}/chat/completions", json.dumps(body), headers | key)
        answer = http_client.getresponse()
        if b"finish_reason" not in answer.read() or answer.status != 200:
            sys.exit(1)
    sys.stdout.write(repr(time.monotonic()))


main()
