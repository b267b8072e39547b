"""A bare bubblewrap box with /app and /logs for the tests of the samples: the system read-only, nothing else.

It also carries out the tool calls of the scripted solutions in the way OpenCode does, without OpenCode.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from opencode_env.samples import Sample
from opencode_env.scripted_model import Reply, ToolCall
from opencode_rubrics.math.mathverdict.verdict import Source, verify_text

from tests.support.waiting import PATIENCE_SECONDS

REWARD_FILE = "logs/verifier/reward.txt"
REPLY_FILE = "reply.txt"


@dataclass(frozen=True)
class Box:
    """Two folders of the host that are /app and /logs inside."""

    root: Path

    @classmethod
    def prepared_for(cls, root: Path, sample: Sample) -> "Box":
        """A fresh box in which the setup commands of the sample have run."""
        (root / "app").mkdir(parents=True)
        (root / "logs" / "verifier").mkdir(parents=True)
        box = cls(root)
        for command in sample.setup:
            done = box.sh(command)
            assert done.returncode == 0, done.stderr
        return box

    def sh(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a shell command in /app."""
        links = [flag for name in ("bin", "sbin", "lib", "lib64") for flag in _like_the_host(Path("/", name))]
        arguments = ["bwrap", "--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--die-with-parent"]
        arguments += [
            "--ro-bind",
            "/usr",
            "/usr",
            "--ro-bind",
            "/etc",
            "/etc",
            *links,
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        ]
        arguments += ["--bind", str(self.root / "app"), "/app", "--bind", str(self.root / "logs"), "/logs"]
        arguments += ["--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--chdir", "/app"]
        return subprocess.run(
            [*arguments, "sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )

    def play(self, steps: tuple[Reply, ...]) -> None:
        """Carry out the tool calls of a solution."""
        for step in steps:
            for call in step.tool_calls:
                self._carry_out(call)
        (self.root / REPLY_FILE).write_text(steps[-1].text)

    def _carry_out(self, call: ToolCall) -> None:
        assert isinstance(call.arguments, dict)
        given = {name: value if isinstance(value, str) else "" for name, value in call.arguments.items()}
        if call.name == "bash":
            self.sh(given["command"])
        elif call.name == "write":
            self._file(given).write_text(given["content"])
        elif call.name == "edit":
            file = self._file(given)
            text = file.read_text()
            everywhere = call.arguments.get("replaceAll", False)
            assert text.count(given["oldString"]) == 1 or (everywhere and given["oldString"] in text)
            file.write_text(text.replace(given["oldString"], given["newString"]))
        elif call.name == "read":
            assert self._file(given).is_file()
        else:
            assert call.name in ("grep", "glob")

    def _file(self, given: dict[str, str]) -> Path:
        return self.root / given["filePath"].removeprefix("/")

    def reward(self, sample: Sample) -> float:
        """What a verifier gives: its own float, or the share of passed commands, or whether the answer is right."""
        passed = [self.sh(command).returncode == 0 for command in sample.verify]
        own = self.root / REWARD_FILE
        if own.exists():
            return float(own.read_text())
        if passed:
            return sum(passed) / len(passed)
        answer = self.root / "app" / "answer.txt"
        if sample.rubric is not None:
            source: Source = "reply" if sample.rubric["type"] == "hybrid-math" else "file"
            given = self.root / REPLY_FILE if source == "reply" else answer
            return float(given.exists() and verify_text(sample.answer or "", given.read_text(), source).right)
        return float(answer.exists() and answer.read_text().strip() == sample.answer)


def _like_the_host(path: Path) -> list[str]:
    """How /bin and its like are on this system: links into /usr, folders of their own, or absent."""
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.exists() else []
