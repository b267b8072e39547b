"""What the documents tell a user to type does what they say, in a fresh directory, with the scripted model."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.console import (
    commands_of,
    files_of,
    free_port,
    looks_like,
    marker,
    run_script,
    script_of,
    shims,
    variables,
)
from tests.docs.pages import PACKAGE_PAGES, PAGES, ROOT, Block, blocks_of, name_of
from tests.env.test_wheels import DOCUMENTED_COMMANDS
from tests.report import made
from tests.support.forked import Forked
from tests.support.light_opencode import light_opencode_in_place
from tests.support.shims import counted

ELSEWHERE = frozenset(f"vf-eval {command}" for command in DOCUMENTED_COMMANDS.values())
"""Run by `tests/env/test_wheels.py`, with the installed wheels."""
ALL = (*PAGES, *PACKAGE_PAGES)
RUN = [page for page in ALL if any(block.is_run_here for block in blocks_of(page))]
RUN_BY_OTHERS = [block for page in ALL for block in blocks_of(page) if block.run_by]
TASKSET = "opencode-env"
PORTS = ("8000", "8001", "8002")


def blocks(language: str) -> list[Block]:
    """All blocks of a language in the documents."""
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


def test_few_blocks_need_what_a_test_does_not_have() -> None:
    needs = {str(block): block.needs for block in blocks("console") if block.needs}
    print(json.dumps(needs, indent=1))
    assert len(needs) <= 0.15 * len(blocks("console"))


@pytest.mark.parametrize("block", RUN_BY_OTHERS, ids=str)
def test_the_tests_that_run_a_block_know_its_options(block: Block) -> None:
    place = ROOT / block.run_by
    text = "".join(file.read_text() for file in ([place] if place.is_file() else sorted(place.rglob("*.py"))))
    for command in commands_of(block):
        program, *words = command.alone.split()
        told = [word for word in words if word.startswith("--env." if program == "vf-eval" else "--")]
        told += words[:1] if program == "opencode-turns" else []
        names = {word: re.escape(word.rpartition(".")[2].removeprefix("--")) for word in told}
        unknown = [word for word, name in names.items() if not re.search(rf'"(--)?{name}"|\b{name}=|{word}\b', text)]
        assert unknown == [], command.text


@pytest.fixture(scope="module")
def substitutes() -> dict[str, str]:
    """What stands for the placeholders, and for the ports that the pages name."""
    ports = {port: str(free_port()) for port in PORTS}
    model = free_port()
    words = {"MODEL": "scripted-model", "URL": f"http://127.0.0.1:{model}/v1", "NAME_OF_KEY_VARIABLE": "OPENAI_API_KEY"}
    return ports | words | {"TASKSET": TASKSET, "SMALL": "small"}


@pytest.fixture(scope="module")
def shell(
    substitutes: dict[str, str], sandboxes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Variables of a shell that has the commands on its path, beside a scripted model."""
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    with light_opencode_in_place(), counted(home / "bin"), (home / "model.log").open("wb") as log:
        shims(home / "bin")
        argv = [sys.executable, "-m", "opencode_env.scripted_model", "--port", substitutes["URL"].split(":")[2][:-3]]
        model = Forked(argv, home, os.environ, log)
        cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))
        yield variables(home) | {"OPENAI_API_KEY": "sk-test", "UV_CACHE_DIR": cache}
        model.terminate()
        model.wait(30)


def repository(directory: Path) -> None:
    """A Git repository with what belongs to this one."""
    listed = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    places = ("environments", "packages", "rubrics", "pyproject.toml")
    for name in subprocess.run([*listed, *places], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split():
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, directory / name)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@test", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], cwd=directory, check=True)


def checkout(directory: Path, page: Path, home: Path, substitutes: dict[str, str]) -> None:
    """What a page finds: the configurations, the environment, runs, and the files that it shows."""
    for file in (ROOT / "configs").rglob("*.*"):
        (directory / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        text = substituted(file.read_text(), {port: substitutes[port] for port in PORTS})
        (directory / file.relative_to(ROOT)).write_text(text)
    (directory / ".venv/bin").mkdir(parents=True)
    activate = (Path(sys.prefix) / "bin/activate").read_text().replace(sys.prefix, str(directory / ".venv"))
    (directory / ".venv/bin/activate").write_text(activate)
    for program in (home / "bin").iterdir():
        (directory / ".venv/bin" / program.name).symlink_to(program)
    traces = [made.trace(number, float(number % 3 == 0), tokens=True) for number in range(8)]
    episodes = [made.episode(number, f"task-{number % 2}", trace) for number, trace in enumerate(traces)]
    made.write_run(directory / "outputs" / "my-run", episodes)
    for name, text in files_of(page):
        (directory / name).write_text(substituted(text, {port: substitutes[port] for port in PORTS}))


def substituted(text: str, words: dict[str, str]) -> str:
    """A text with words in place of others."""
    return re.sub(r"\b(" + "|".join(words) + r")\b", lambda found: words[found[0]], text)


@pytest.mark.slow
@pytest.mark.opencode
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, shell: dict[str, str], substitutes: dict[str, str], tmp_path: Path
) -> None:
    checkout(tmp_path, page, Path(shell["HOME"]), substitutes)
    script = script_of(page, ELSEWHERE)
    if "pip install" in script:
        repository(tmp_path)
        venv = ["uv", "venv", "-q", "--python", sys.executable, f"{shell['HOME']}/installed"]
        subprocess.run(venv, env=shell, check=True)
    output, code = run_script(substituted(script, substitutes), tmp_path, shell)
    assert code == 0, output[-6000:]
    printed = dict(re.findall(r"^(@@\d+\.\d+)\n(.*?)(?=^@@\d|\Z)", output, re.MULTILINE | re.DOTALL))
    for block in blocks_of(page):
        for number, command in enumerate(commands_of(block) if block.is_run_here else ()):
            if command.alone in ELSEWHERE:
                continue
            said = printed[marker(block, number)]
            assert looks_like(command.output, said), (command.text, said[-3000:])
            if command.text.startswith("vf-eval"):
                assert "rollout finished" in said, said[-3000:]
                assert "error=-" in said, said[-3000:]


def evaluations() -> list[tuple[str, str]]:
    """All commands of the documents and of the heads of configurations that call a model."""
    shown = [(name_of(page), block) for page in ALL for block in blocks_of(page) if block.language == "console"]
    found = [(place, command.alone) for place, block in shown for command in commands_of(block)]
    heads = [(name_of(path), path.read_text()) for path in sorted((ROOT / "configs").rglob("*.toml"))]
    found += [(place, line) for place, text in heads for line in re.findall(r"^#   uv run (.*)$", text, re.MULTILINE)]
    return [(place, text) for place, text in found if text.startswith("vf-eval") and "--help" not in text]


@pytest.mark.parametrize(("place", "command"), evaluations())
def test_a_command_pushes_nothing_and_names_the_service_that_it_pays(place: str, command: str) -> None:
    assert "--no-push" in command, "it would upload the run where a key of Prime's is set"
    named = re.search(r"@ (\S+)", command)
    options = tomllib.loads((ROOT / named[1]).read_text()) if named else {}
    assert "model" in options or re.search(r" (-m|--model) ", command), "verifiers would take a model of its own"
    assert "max_concurrent" in options or re.search(r" (-c|--max-concurrent) ", command), (
        "verifiers would play 128 at once"
    )
    assert "base_url" in options.get("client", {}) or "--client.base-url" in command, "verifiers would ask Prime's"


@pytest.mark.slow
def test_the_first_pip_of_python_3_11_installs_as_the_readme_says(
    sandboxes: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("repository")
    repository(directory)
    venv = directory / "venv"
    subprocess.run(["uv", "venv", "-q", "--python", sys.executable, venv], check=True)
    brought = ["pip==23.0", "hatchling", "setuptools"]
    subprocess.run(["uv", "pip", "install", "-q", "--python", venv, *brought], check=True)
    found = re.findall(r'"\$REPOSITORY(#egg=\S+)"', (ROOT / "README.md").read_text())
    assert len(found) == 5
    asked = [f"git+file://{directory}{part}" for part in found[:1]]  # the others are of the same form
    install = [str(venv / "bin/python"), "-m", "pip", "install", "--no-deps", "--no-build-isolation", *asked]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", [*blocks("toml"), *blocks("python"), *blocks("yaml"), *blocks("json")], ids=str)
def test_a_snippet_can_be_parsed(block: Block) -> None:
    if block.language == "toml":
        assert tomllib.loads(block.text)
    elif block.language == "python":
        compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    else:
        assert yaml.safe_load(block.text) is not None
