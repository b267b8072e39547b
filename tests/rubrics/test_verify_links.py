"""What agent code and the files that it left find out about the commands that check them, and do to them: nothing."""

import agent_sandbox.toolbox.scoring_home
import pytest
import verifiers.v1 as vf

from tests.rubrics.test_verify_cheats import do, score, shown, solve


@pytest.fixture
def box(shared_root_box: vf.Runtime) -> vf.Runtime:
    return shared_root_box


LINKS = {
    "command line": ("ln -s /proc/self/cmdline answer", "grep -q 4242 answer"),
    "command line of a program": (
        "ln -s /proc/self/cmdline answer",
        """python3 -I -c 'import sys; sys.exit("4242" not in open("/app/answer").read())'""",
    ),
    "environment": ("ln -s /proc/self/environ answer", "grep -q 4242 <answer"),
    "standard input": ("ln -s /proc/self/fd/0 answer", "echo 42 | cmp - answer"),
    "standard input by its device": ("ln -s /dev/stdin answer", "echo 42 | cmp - answer"),
    "open file": ("ln -s /dev/fd/3 answer", 'echo 42 >"$TMPDIR/w"; exec 3<"$TMPDIR/w"; [ "$(cat answer)" = 42 ]'),
    "directory": ("ln -s /proc/self answer", "grep -q 4242 answer/cmdline"),
    "directory of the check": (
        "ln -s /proc/self/cwd/want answer",
        'cd "$TMPDIR"; echo 42 >want; cmp /app/answer want',
    ),
    "process to come": ("ln -s /proc/99999/environ answer", "[ -L answer ]"),
    "folder that cannot be listed": (
        "mkdir d; ln -s /proc/self/cmdline d/answer; chmod 311 d",
        "grep -q 4242 d/answer",
    ),
    "workdir that cannot be listed": ("ln -s /proc/self/cmdline answer; chmod 311 /app", "grep -q 4242 answer"),
    "detour": ("mkdir /tmp/x; ln -s ../../proc/self /tmp/x/y; ln -s /tmp/x/y/cmdline answer", "grep -q 4242 answer"),
}


@pytest.mark.parametrize("cheat", LINKS)
async def test_no_answer_is_a_link_to_its_own_check(box: vf.Runtime, cheat: str) -> None:
    plant, check = LINKS[cheat]
    await do(box, "chmod -R u+rwX . && rm -rf ./* /tmp/x")
    await do(box, f"ln -s /etc/hostname kept; ln -s kept 'kept too'; {plant}")
    trace = await score(box, check, "[ -r kept ] && [ -r 'kept too' ]")
    assert [result["exit_code"] == 0 for result in trace.info["verify"]] == [False, True], shown(trace)


async def test_a_link_is_found_among_very_many(confined: vf.Runtime) -> None:
    await do(confined, 'python3 -c \'import os; [os.symlink("f", f"l{n}") for n in range(50_000)]\'; echo 1 >f')
    await do(confined, "ln -s /proc/self/cmdline /tmp/answer")
    trace = await score(confined, "grep -q 4242 /tmp/answer", "[ -e l49999 ]")
    assert [result["exit_code"] == 0 for result in trace.info["verify"]] == [False, True], shown(trace)


async def test_more_odd_links_than_can_be_looked_at_are_a_zero(
    confined: vf.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sandbox.toolbox.scoring_home, "_SECONDS", 0.5)
    await do(confined, "python3 -c 'import os; [os.symlink(chr(10), f\"l{n}\") for n in range(5_000)]'")
    await do(confined, "ln -s /proc/self/cmdline /tmp/answer")
    trace = await score(confined, "grep -q 4242 /tmp/answer; true")
    assert trace.reward == 0, shown(trace)
    assert "did not end within 0.5 s" in trace.info["verify_unready"]


async def test_no_output_of_a_check_goes_through_a_link_into_the_reward(box: vf.Runtime) -> None:
    await do(box, "chmod -R u+rwX . && ln -s /logs/verifier/reward.txt out")
    await solve(box, 'ln -s /logs/verifier/reward.txt "$AGENT_CODE_DIR/log"')
    check = 'echo 1 >out; run-agent-code -- sh solve.sh; echo 1 >"$AGENT_CODE_DIR/log"; cat /app/out'
    trace = await score(box, check, reward_file=True)
    assert trace.reward == 0, shown(trace)
    assert "no verify command wrote" in trace.info["reward_file"]


async def test_agent_code_answers_with_no_link_to_its_check(box: vf.Runtime) -> None:
    await solve(
        box,
        'cd "$AGENT_CODE_DIR"; ln -s /proc/self/cmdline a; ln -s /dev/stdin b; ln -s ../tmp/want c; mkdir d; '
        "ln -s ../a d; echo 1 >e; ln -s e f; ln -s /app/solve.sh g",
    )
    trace = await score(
        box,
        'echo 42 >"$TMPDIR/want"; run-agent-code -- sh solve.sh; cd "$AGENT_CODE_DIR"; grep -q 4242 a; [ $? = 2 ] && '
        '! cmp "$TMPDIR/want" b <"$TMPDIR/want" && ! cmp "$TMPDIR/want" c && ! grep -q 4242 d/a && '
        "cmp e f && cmp g /app/solve.sh",
    )
    assert trace.reward == 1, shown(trace)


@pytest.mark.parametrize(
    "spoil", ['chmod 000 "$AGENT_CODE_DIR"', "rm -rf ../d", "mv ../d ../e", "rm in; mkdir in", "rm in"]
)
async def test_agent_code_cannot_make_the_next_run_an_error(box: vf.Runtime, spoil: str) -> None:
    await solve(box, spoil)
    again = "run-agent-code --stdin in -- sh /app/solve.sh"
    trace = await score(box, f'mkdir "$AGENT_CODE_DIR/d"; cd "$AGENT_CODE_DIR/d"; touch in; {again}; {again}; false')
    assert trace.reward == 0, shown(trace)


async def test_programs_that_ask_the_system_for_their_home_find_no_settings_there(confined: vf.Runtime) -> None:
    await do(confined, "echo 42 >x; echo 'url = file:///app/x' >~/.curlrc; echo '.shell touch /app/ran' >~/.sqliterc")
    trace = await score(
        confined,
        "python3 -I -c 'import os, pwd, sys; sys.exit(os.path.exists(pwd.getpwuid(os.getuid()).pw_dir))'",
        '! command -v curl || [ -z "$(curl -s file:///nowhere)" ]',
        "! command -v sqlite3 || { sqlite3 :memory: 'select 1'; [ ! -e ran ]; }",
    )
    assert trace.reward == 1, shown(trace)
    assert (await do(confined, "getent passwd agent")).split(":")[5] == "/home/agent"
