"""What an agent may do to pass verify commands without the work, or to make an error of its failure."""

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, ScoringError, VerifyCommandsConfig, VerifyCommandsRubric
from rollout_sandbox.toolbox.scoring_home import is_static

from tests.rubrics.conftest import CheckedData, trace_of
from tests.support.sizes import size


def has_own_shell() -> bool:
    found = [shutil.which(name) for name in ("bash-static", "busybox")]
    return all(path is not None and is_static(Path(path)) for path in found)


@pytest.fixture
def box(root_box: vf.Runtime) -> vf.Runtime:
    return root_box


APART = 'got=$(run-agent-code -- sh /app/solve.sh) && [ "$got" = 42 ]'


async def score(box: vf.Runtime, *verify: str, **options: Any) -> AnyTrace:
    """The trace of a rollout in /app whose verify commands these are."""
    trace = trace_of(CheckedData(prompt="?", verify=list(verify), workdir="/app"))
    await VerifyCommandsRubric(VerifyCommandsConfig(**options)).score(trace.task.data, trace, box)
    return trace


async def do(box: vf.Runtime, command: str) -> str:
    """Run a command as the agent does, at work in /app; its output."""
    done = await box.run(["sh", "-c", f"mkdir -p /app && cd /app && {command}"], {})
    assert done.exit_code == 0, done.stderr
    return done.stdout


async def solve(box: vf.Runtime, script: str) -> None:
    await box.write("/app/solve.sh", script.encode())


def shown(trace: AnyTrace) -> str:
    return json.dumps(trace.info["verify"], indent=1)


async def test_agent_code_that_is_right_is_rewarded(box: vf.Runtime) -> None:
    await solve(box, "echo 42; exit 3")
    trace = await score(box, APART)
    assert trace.reward == 1, shown(trace)


async def test_agent_code_has_stdin_a_limit_and_a_status_and_its_exit_is_no_verdict(box: vf.Runtime) -> None:
    what = "kill) kill -9 $$ ;; sleep) sleep 60 ;; much) yes ;; *) cat; echo err >&2; exit 7 ;;"
    await solve(box, f"case $1 in {what} esac")
    trace = await score(
        box,
        'echo in > "$TMPDIR/in"; run-agent-code --stdin "$TMPDIR/in" --status "$TMPDIR/s" -- sh solve.sh 2>"$TMPDIR/e" '
        '> "$TMPDIR/o"; [ "$? $(cat "$TMPDIR/s" "$TMPDIR/o" "$TMPDIR/e" | tr "\\n" " ")" = "0 exit 7 in err " ]',
        'run-agent-code --status "$TMPDIR/s" -- sh solve.sh kill; [ "$(cat "$TMPDIR/s")" = "signal 9" ]',
        'run-agent-code --timeout 1 --status "$TMPDIR/s" -- sh solve.sh sleep; [ "$(cat "$TMPDIR/s")" = timeout ]',
        '[ "$(run-agent-code --max-output 1000 -- sh solve.sh much | wc -c)" = 1000 ]',
        'cd "$AGENT_CODE_DIR" && echo x > made && run-agent-code -- sh -c "cat made; rm made; echo y > done" && '
        '[ "$(ls) $(cat done)" = "done y" ]',
    )
    assert trace.reward == 1, shown(trace)


async def test_agent_code_sees_and_reaches_nothing_of_its_judge(box: vf.Runtime) -> None:
    looks = (
        "echo 1 > /logs/verifier/reward.txt; "
        'for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do tr "\\0" " " <"$f"; echo; done; '
        "ls -l /proc/self/fd; env; cat /run/scoring-*/tmp/* /tmp/scoring-*/tmp/* /logs/verifier/*; "
        "echo 'exit 0' > /run/scoring-*/tmp/status; kill -9 -1; true"
    )
    await solve(box, looks)
    secret = "xyzzy-" + "expected"
    trace = await score(
        box,
        f'want={secret}; echo "$want" > "$TMPDIR/want"; echo 0 > /logs/verifier/reward.txt; exec 5<"$TMPDIR/want"; '
        'run-agent-code -- sh solve.sh > "$TMPDIR/seen" 2>&1; cat "$TMPDIR/seen"; ! grep -q "$want" "$TMPDIR/seen"',
        "true",
        reward_file=True,
    )
    assert [result["exit_code"] for result in trace.info["verify"]] == [0, 0], shown(trace)
    assert trace.reward == 0


async def test_agent_code_changes_nothing_of_the_work_and_nothing_of_it_lives_on(box: vf.Runtime) -> None:
    await do(box, "echo 1 > tests.txt")
    await solve(box, "echo 2 > /app/tests.txt; (sleep 987654 & sleep 987653 >/dev/null 2>&1 &) ; echo 42")
    alive = 'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " <"$f"; done 2>/dev/null | grep -q "sleep 98765[34]"'
    trace = await score(box, APART, f"! {{ {alive}; }}", '[ "$(cat tests.txt)" = 1 ]')
    root_in_a_container = box.type == "podman"
    verdicts = [result["exit_code"] for result in trace.info["verify"]]
    assert verdicts[:2] == [0, 0], shown(trace)
    # There the agent's files belong to root, which agent code is not, either.
    assert verdicts[2] == 0 or not root_in_a_container, shown(trace)


async def test_agent_code_has_no_network(confined: vf.Runtime) -> None:
    await solve(confined, "cat /proc/net/dev; ls /.vf/door/socket && echo door")
    trace = await score(confined, "run-agent-code -- sh solve.sh")
    out = trace.info["verify"][0]["stdout"]
    assert [line.split(":")[0].strip() for line in out.splitlines() if ":" in line] == ["lo"]
    assert "door" not in out


async def test_a_flood_at_the_door_is_turned_away_and_fills_no_log(
    confined: vf.Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each connection is one of the evaluation's descriptors."""
    monkeypatch.setattr("rollout_sandbox.confined.agent_code._WAITING", 4)
    await solve(confined, "exec sleep 1000")
    call = "run-agent-code --timeout 900 -- sh solve.sh 2>/dev/null"
    trace = await score(confined, f"for i in $(seq 8); do {call} & done; sleep 2; jobs | wc -l", "true")
    assert [result["exit_code"] for result in trace.info["verify"]] == [0, 0], shown(trace)
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_nobody_opens_the_door_while_the_agent_works(confined: vf.Runtime) -> None:
    seen = await do(confined, "ls -A /.vf/door; echo x > /.vf/door/socket || echo refused; ls /run/agent-code")
    assert seen == "refused\n"


async def test_what_the_agent_left_in_the_shared_directory_is_gone(box: vf.Runtime) -> None:
    await do(box, "mkdir -p /run/agent-code/a && touch /run/agent-code/a/b && ln -s /app /run/agent-code/l")
    await do(box, "chmod 000 /run/agent-code/a; chmod 500 /run/agent-code")
    trace = await score(box, '[ -z "$(ls -A "$AGENT_CODE_DIR")" ] && touch "$AGENT_CODE_DIR/x" && ls /app')
    assert trace.reward == 1, shown(trace)


@pytest.mark.podman
async def test_where_agent_code_cannot_be_kept_apart_the_rollout_is_an_error(container: vf.Runtime) -> None:
    await solve(container, "echo 42")
    await container.run(["rm", "/usr/bin/setpriv"], {})
    with pytest.raises(ScoringError, match="cannot be kept apart here"):
        await score(container, f"{APART} || true")


HOME = (
    "d=$(python3 -c 'import site; print(site.getusersitepackages())') && mkdir -p $d && "
    "echo 'import os; os._exit(0)' | tee $d/usercustomize.py $d/x.pth > $d/sitecustomize.py; "
    "for f in .profile .bashrc .bash_profile .bash_login .kshrc .zshenv; do echo 'exit 0' > ~/$f; done"
)


async def test_what_the_agent_left_at_home_does_not_pass_a_check(box: vf.Runtime) -> None:
    await do(box, HOME)
    checks = ["python3 -c 'raise SystemExit(1)'"]
    if (await box.run(["sh", "-c", "command -v bash"], {})).exit_code == 0:
        checks += ["bash -lc 'exit 1'", "bash -ic 'exit 1'"]
    trace = await score(box, *checks)
    assert trace.reward == 0, shown(trace)


GIT = (
    "git config --global alias.x '!true'; git config --global core.fsmonitor /app/hook; mkdir -p ~/.config/git",
    "printf '[core]\\nfsmonitor = /app/hook\\n' > ~/.config/git/config; git config core.fsmonitor /app/hook",
    "git config core.hooksPath /app/hooks && mkdir hooks && ln /app/hook hooks/post-index-change",
)


async def test_git_runs_nothing_of_the_agents_by_its_settings(confined: vf.Runtime) -> None:
    hook = "printf '#!/bin/sh\\ntouch /app/ran\\n' > /app/hook && chmod +x /app/hook"
    await do(confined, " && ".join([hook, "git init -q .", "touch f", "git add f", *GIT]))
    trace = await score(confined, "git status >/dev/null; git add -A; git diff --cached >/dev/null; [ -e /app/ran ]")
    assert trace.reward == 0, shown(trace)


async def test_npm_and_pip_read_no_settings_of_the_agents(confined: vf.Runtime) -> None:
    pip = r"[global]\nindex-url = http://evil.invalid\n"
    await do(confined, f"mkdir -p ~/.config/pip && printf '{pip}' > ~/.config/pip/pip.conf")
    await do(confined, "printf 'script-shell=/bin/true\\nregistry=http://evil.invalid/\\n' > ~/.npmrc")
    files = ("~/.npmrc", '"$XDG_CONFIG_HOME/pip/pip.conf"', '"$PIP_CONFIG_FILE/x"')
    trace = await score(confined, "env; " + " || ".join(f"[ -e {file} ]" for file in files))
    variables = dict(line.split("=", 1) for line in trace.info["verify"][0]["stdout"].splitlines() if "=" in line)
    assert trace.reward == 0
    assert variables["PIP_CONFIG_FILE"] == "/dev/null"
    assert "/home/agent" not in {**variables, "PATH": ""}.values()
    assert variables["HOME"].startswith("/run/scoring-")


async def test_a_sandbox_without_room_is_scored_by_its_commands(confined: vf.Runtime) -> None:
    await do(confined, "echo 42 > made; chmod 000 /tmp /run /dev/shm")
    assert (await score(confined, "test -f made", "false")).reward == 0.5
    await do(confined, "chmod 755 /tmp /run /dev/shm")


async def test_the_home_of_the_scoring_is_gone_afterwards(box: vf.Runtime) -> None:
    trace = await score(box, 'mkdir -m 000 "$HOME/locked"; echo "$HOME"')
    home = trace.info["verify"][0]["stdout"].strip().removesuffix("/home")
    assert "/scoring-" in home
    assert (await box.run(["test", "-e", home], {})).exit_code == 1


# A container whose agent is root.


async def replaced_shell(box: vf.Runtime, script: str) -> None:
    """Put a script of the agent's in the place of `sh`, and let `true` fail, so that nothing inside seems to work."""
    lines = [
        "cp -L /bin/sh /opt/real-sh && rm -f /usr/bin/true && ln -s /usr/bin/false /usr/bin/true",
        f"printf '#!/opt/real-sh\\n%s\\n' '{script}' > /opt/sh",
        "chmod 755 /opt/sh && mv /opt/sh $(readlink -f /bin)/sh",
    ]
    await do(box, " && ".join(lines))


@pytest.mark.podman
async def test_no_exit_code_of_a_replaced_shell_is_an_error(container: vf.Runtime) -> None:
    await do(container, "echo 1 > /opt/code")
    await replaced_shell(container, "exit $(/usr/bin/cat /opt/code)")
    for code in (1, 3, 40, 124, 126, 127, 137, 255):
        await container.run(["/opt/real-sh", "-c", f"echo {code} > /opt/code"], {})
        trace = await score(container, "true", f"exit {code}", reward_file=True)
        assert trace.reward == 0
        assert trace.info["reward_file"]
    assert (await score(container, "false", "exit 255")).reward == 0


needs_own_shell = pytest.mark.skipif(not has_own_shell(), reason="needs apt-get install bash-static busybox-static")


@pytest.mark.podman
@needs_own_shell
async def test_a_replaced_shell_or_cat_passes_no_check(container: vf.Runtime) -> None:
    await do(container, "echo 1 > answer; cp -L /bin/sh /opt/real-sh; printf '#!/opt/real-sh\\necho 42\\n' > /opt/cat")
    await do(container, "chmod 755 /opt/cat; cp /opt/cat /usr/bin/cat")
    await do(container, "for p in test [ timeout; do cp /bin/true /usr/bin/$p; done")
    await replaced_shell(container, "exit 0")
    false = ['[ "$(cat /app/answer)" = 42 ]', "test -e /nowhere", "exit 1", "cmp -s answer /dev/null"]
    trace = await score(container, *false)
    assert trace.reward == 0, shown(trace)
    trace = await score(container, '[ "$(cat /app/answer)" = 1 ]', "python3 -c 'raise SystemExit(0)'")
    assert trace.reward == 1, shown(trace)


@pytest.mark.podman
@needs_own_shell
async def test_a_preloaded_library_reaches_no_program_of_ours(container: vf.Runtime) -> None:
    await do(container, "echo /app/evil.so > /etc/ld.so.preload")
    trace = await score(container, "exit 1", 'cat /etc/hostname 2> "$TMPDIR/said" && [ ! -s "$TMPDIR/said" ]')
    assert [result["exit_code"] for result in trace.info["verify"]] == [1, 0]


@pytest.mark.podman
@pytest.mark.parametrize("program", ["tail", "sh", "rm"])
async def test_endless_output_of_a_replaced_program_fills_no_memory_of_the_host(
    container: vf.Runtime, program: str
) -> None:
    await replaced_shell(container, f"exec head -c {size(500, 1500)}000000 /dev/zero")
    await container.run(["/opt/real-sh", "-c", f"cp /bin/sh /opt/flood; cp /opt/flood /usr/bin/{program}"], {})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trace = await score(container, "false")
    assert trace.reward == 0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # Of that a runtime keeps 32 MiB of each stream, and copies of it while it decodes.
    assert grown < 400_000, f"{grown} kB"
