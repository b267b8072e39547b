"""Headless Chromium, driven over its DevTools protocol: what a page shows, says and asks the network for."""

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PATIENCE = 60.0
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27}


class Browser:
    """One tab; `said` holds what its console and its errors said, `asked` every address that it asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._count = 0
        self._session = ""
        self.said: list[str] = []
        self.asked: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The answer to one command."""
        self._count += 1
        request = {"id": self._count, "method": method, "params": params}
        self._socket.send(json.dumps(request | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE))
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _note(self, event: str | None, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            found = params["exceptionDetails"]
            self.said.append(found.get("exception", {}).get("description") or found["text"])
        elif event == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(one.get("value")) for one in params["args"]))
        elif event == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        elif event == "Page.javascriptDialogOpening":
            self.said.append(f"dialog: {params['message']}")
        elif event == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until an expression holds; its value."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(script)):
            assert time.monotonic() < end, (script, self.said, self.run("document.body.innerText")[:2000])
            time.sleep(0.02)
        return value

    def open(self, page: Path, where: str = "") -> None:
        """Open a page at an address within it, afresh, and wait until it stands."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.resolve().as_uri() + where)
        self.until(READY)

    def go(self, where: str) -> None:
        """Follow an address within the page."""
        self.run(f"location.hash = {json.dumps(where)}")
        self.until(READY)

    def press(self, key: str) -> None:
        """Press and let go of a key."""
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = KEYS.get(key, ord(key[0]))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    @property
    def text(self) -> str:
        """What the page shows."""
        return str(self.run("document.body.innerText"))

    def picture(self, path: Path, *, width: int = 1280, height: int = 860, dark: bool = False) -> None:
        """Take a screenshot of a window of this size, without scroll bars."""
        self.size(width, height, dark=dark)
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Make the window this large, light or dark."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)


READY = "document.getElementById('main')?.dataset.ready === location.hash"


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; skips the test where the machine has none, unless it is CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        assert not os.environ.get("CI"), "chromium is missing: CI installs it (scripts/setup.sh --tests)"
        pytest.skip("chromium is missing: apt-get install chromium")
    argv = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    argv += ["--disable-background-networking", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    path = profile.parent / "chromium.log"
    with path.open("wb") as log:
        process = subprocess.Popen([*argv, "about:blank"], stdout=log, stderr=log)
    try:
        with connect(_address(process, path), max_size=None) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := re.search(r"DevTools listening on (ws://\S+)", log.read_text(errors="replace")):
            return found[1]
        assert process.poll() is None, log.read_text(errors="replace")
        time.sleep(0.05)
    raise AssertionError(log.read_text(errors="replace"))
