"""The arguments of `podman run`."""

from dataclasses import dataclass
from pathlib import Path

from verifiers.v1.runtimes.base import parse_gpu

from agent_sandbox.confined import Bind


@dataclass(frozen=True)
class ContainerOptions:
    """What one container is: of the seat's configuration, and of the environment."""

    image: str
    workdir: str
    cpu: float | None = None
    """Cores; None: no limit."""
    memory: float | None = None
    """GB; None: no limit."""
    gpu: str | None = None
    restricted: bool = False
    """Whether it loses its network when the agent starts."""
    binds: tuple[Bind, ...] = ()
    """Host files and directories that it sees, read-only."""
    run_options: tuple[str, ...] = ()
    """Further options of `podman run`."""


def run_arguments(options: ContainerOptions, name: str, directory: Path) -> list[str]:
    """Arguments that start a container which waits for its commands; the `directory` holds what belongs to it on the
    host: `pid` afterwards and, if restricted, `hosts`."""
    # SIGKILL, because a `sleep` that is process 1 ignores everything else and a removal would wait ten seconds for it.
    arguments = ["run", "--detach", "--name", name, "--network", "bridge", "--http-proxy=false"]
    arguments += ["--stop-signal", "KILL", "--stop-timeout", "0", "--pidfile", str(directory / "pid")]
    if options.restricted:
        # podman would write its own file anew when the network goes.
        arguments += ["--no-hosts", "--volume", f"{directory / 'hosts'}:/etc/hosts:ro"]
    if options.cpu is not None:
        arguments += ["--cpus", f"{options.cpu:g}"]
    if options.memory is not None:
        arguments += ["--memory", f"{options.memory:g}g"]
    for index in range(parse_gpu(options.gpu)[1]):
        arguments += ["--device", f"nvidia.com/gpu={index}"]
    for bind in options.binds:
        arguments += ["--mount", _mount(bind)]
    return [*arguments, *options.run_options, "--entrypoint", "sleep", options.image, "infinity"]


def _mount(bind: Bind) -> str:
    """The value of `--mount`, which is one line of CSV."""
    fields = ("type=bind", f"source={bind.source}", f"target={bind.target}", "readonly", "relabel=shared")
    return ",".join('"' + field.replace('"', '""') + '"' if set(field) & set(',"') else field for field in fields)
