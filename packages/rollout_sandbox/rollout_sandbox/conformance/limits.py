"""Promises about what one sandbox may use: what goes beyond ends, and the sandbox and its neighbours work on."""

from typing import Any

from rollout_sandbox.conformance.promises import NotAsked, Subject, program, promise, require, require_python, shell

_PROCESSES = 100
_FILL_DISK = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); head -c 1M /dev/zero >f$i || exit 3; done"


def limited(subject: Subject, **options: Any) -> dict[str, Any]:
    """The option that the runtime has for a limit (`NotAsked`: it has none of these)."""
    for name, value in options.items():
        if subject.has(name):
            return {name: value}
    raise NotAsked(f"its configuration has none of {', '.join(options)}")


@promise(
    "What takes more memory than its sandbox may have is killed, and the shell that started it sees that",
    change="bound the memory of all processes together (a control group), and kill the largest, not the sandbox",
)
async def memory(subject: Subject) -> None:
    async with subject.box(**limited(subject, max_memory="256MiB", memory=0.25)) as box:
        await require_python(box)
        result = await shell(box, "(python3 -c 'x = bytearray(1 << 30)') & wait $!; echo $?; echo alive")
        require(result.stdout.split() == ["137", "alive"], f"1 GB with a limit of 256 MiB: {result}")
        require((await box.run(["true"], {})).exit_code == 0, "nothing runs in the sandbox any more")


@promise(
    "A fork bomb stops at its limit; commands still start in its sandbox, and other sandboxes notice nothing",
    change="bound processes by control group or user namespace, and count those of each sandbox apart",
)
async def processes(subject: Subject) -> None:
    limit = limited(subject, max_processes=_PROCESSES, run_options=[f"--pids-limit={_PROCESSES}"])
    async with subject.box(**limit) as box, subject.box(**limit) as neighbour:
        await require_python(box)
        result = await box.run(program("many_processes.py", "400"), {})
        require("unavailable" in result.stdout, f"400 processes with a limit of {_PROCESSES}: {result}")
        made = int(result.stdout.split()[0])
        require(_PROCESSES // 2 < made < _PROCESSES, f"it stopped at {made} with a limit of {_PROCESSES}")
        for name, each in (("the sandbox", box), ("its neighbour", neighbour)):
            result = await each.run(["true"], {})
            require(result.exit_code == 0, f"nothing starts in {name} any more: {result}")


@promise(
    "What fills the disk is ended, and the sandbox can be used when its files are removed",
    change="bound the files of a sandbox (a quota, a file system of its own, or a watch)",
)
async def disk(subject: Subject) -> None:
    async with subject.box(**limited(subject, max_disk="32MiB")) as box:
        result = await shell(box, _FILL_DISK)
        require(result.exit_code != 0, "2 GB were written with a limit of 32 MiB")
        again = await shell(box, "rm -f f*; echo x >x; cat x")
        require(again.stdout == "x\n", again)
