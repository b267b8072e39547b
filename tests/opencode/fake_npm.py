"""A stand-in for the command `npm` on PATH: serves packages of its own, counts what it is asked, and hands what it
does not have to the real one."""

import base64
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opencode_env.agents.named.npm import npm_command

_PROGRAM = """#!{python} -ISs
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
real = json.loads((here / "real.json").read_text())
spec = sys.argv[2]
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
served = here / spec.replace("/", "%")
if not served.is_dir():
    os.execvp(real[0], [*real, *sys.argv[1:]])
if (served / "failure").exists():
    sys.exit((served / "failure").read_text())
time.sleep(0.3)
if sys.argv[1] == "view":
    print((served / "integrity").read_text())
else:
    target = pathlib.Path(sys.argv[sys.argv.index("--pack-destination") + 1], "package.tgz")
    target.write_bytes((served / "archive").read_bytes())
"""


def tgz(content: Mapping[str, bytes]) -> bytes:
    """A gzipped tar archive of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def integrity(archive: bytes) -> str:
    """npm's checksum of an archive."""
    return "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()


@dataclass
class FakeNpm:
    """The directory to put first on PATH, and what is served from it."""

    directory: Path
    real: list[str] = field(default_factory=npm_command)

    def __post_init__(self) -> None:
        (self.directory / "real.json").write_text(json.dumps(self.real))
        program = self.directory / "npm"
        program.write_text(_PROGRAM.format(python=sys.executable))
        program.chmod(0o755)

    def serve(self, spec: str, archive: bytes, published: str | None = None) -> None:
        """Serve an archive; its published checksum is right unless given."""
        place = self._place(spec)
        (place / "archive").write_bytes(archive)
        (place / "integrity").write_text(integrity(archive) if published is None else published)

    def fail(self, spec: str, message: str) -> None:
        """Let every call about this package fail."""
        (self._place(spec) / "failure").write_text(message)

    def calls(self, spec: str) -> list[str]:
        """The commands that were asked about a package."""
        lines = [json.loads(line) for line in (self.directory / "calls").read_text().splitlines()]
        return [command for command, of, *_ in lines if of == spec]

    def _place(self, spec: str) -> Path:
        place = self.directory / spec.replace("/", "%")
        place.mkdir(exist_ok=True)
        return place
