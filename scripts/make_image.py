"""`make image`: an image of any base with OpenCode, ripgrep and the math scorer in it (see the Dockerfile).

Invariant: what goes into the image is this machine's cache of checked programs, and the build compares it once more.
"""

import argparse
import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from opencode_env.agents.opencode.builds import DEFAULT_VERSION, CachedBuild, Platform, ensure_build, host_platform
from opencode_rubrics.math.scorer_bundle import SANDBOX_ROOT, ScorerBundle, ensure_bundle

DOCKERFILE = Path(__file__).parent.parent / "Dockerfile"


def main(arguments: list[str]) -> int:
    """Build the image; returns the exit code of the engine, or 2 when there is none."""
    asked = _arguments().parse_args(arguments)
    engine = asked.engine or next((name for name in ("podman", "docker") if shutil.which(name)), None)
    if engine is None:
        print("make image needs podman or docker on PATH", file=sys.stderr)
        return 2
    arch = asked.arch or host_platform().arch
    build = ensure_build(asked.version, Platform(arch, asked.libc))
    bundle = asyncio.run(ensure_bundle())
    tag = asked.tag or f"opencode-sandbox:{asked.version}"
    with tempfile.TemporaryDirectory(prefix="image-") as directory:
        context = Path(directory)
        fill_context(context, build, bundle)
        options = ["--build-arg", f"BASE={asked.base}", "--tag", tag, "--file", str(DOCKERFILE)]
        built = subprocess.run([engine, "build", *options, str(context)], check=False).returncode
    if built == 0:
        print(f"built {tag} on {asked.base}; push it to a registry that your sandboxes reach, then")
        print(f"  --env.agent.runtime.image {tag} --env.agent.harness.install image")
    return built


def fill_context(context: Path, build: CachedBuild, bundle: ScorerBundle) -> None:
    """Lay out what the Dockerfile copies: `opencode/` with its checksums, and `scorer/`."""
    programs, scorer = context / "opencode", context / "scorer"
    shutil.copytree(build.directory, programs / build.directory.name)
    scorer.mkdir()
    archive = scorer / Path(bundle.archive_target).name
    shutil.copy(bundle.archive, archive)
    copied = {
        f"/opencode/{build.directory.name}/{name}": programs / build.directory.name / name
        for name in ("opencode", "rg")
    }
    copied[f"{SANDBOX_ROOT}/{archive.name}"] = archive
    lines = [f"{_sha256(path)}  {name}\n" for name, path in copied.items()]
    (programs / "SHA256SUMS").write_text("".join(lines))
    for path in (context, *context.rglob("*")):  # readable for every user of a sandbox, whatever the umask here
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make image", description=__doc__)
    parser.add_argument("--base", default="python:3.11-slim", help="the image to build on")
    parser.add_argument("--tag", help="the name of the new image; opencode-sandbox:VERSION by default")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the OpenCode release")
    parser.add_argument("--arch", choices=("x64", "arm64"), help="the processor; this machine's by default")
    parser.add_argument("--libc", choices=("glibc", "musl"), default="glibc", help="the base's C library")
    parser.add_argument("--engine", help="podman or docker; the one that is there by default")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
