"""An answer is right, wrong or unusable; only a failing sandbox is an error."""

import pytest
import verifiers.v1 as vf
from opencode_rubrics import AnswerConfig, AnswerRubric
from pydantic import ValidationError
from rollout_sandbox.compat import backend_of

from tests.rubrics.conftest import CheckedData, trace_of

PATH = "/app/answer.txt"


async def score(
    box: vf.Runtime, answer: str | None = "42", *, reply: str = "no idea", path: str = PATH
) -> tuple[float, dict[str, str]]:
    """Reward and record of a rollout that ended with `reply`."""
    task = CheckedData(prompt="?", answer=answer)
    trace = trace_of(task, reply)
    await AnswerRubric(AnswerConfig(answer_path=path)).score(task, trace, box)
    assert trace.rewards.keys() == {"exact_answer"}
    return trace.reward, trace.info["answer"]


async def test_the_answer_file_goes_before_the_last_reply(box: vf.Runtime) -> None:
    await box.write(PATH, b" 42.0\n")
    assert await score(box, reply="41") == (1.0, {"source": "file", "reason": "equal"})
    await box.write(PATH, b"41")
    assert await score(box, reply="42") == (0.0, {"source": "file", "reason": "different"})


async def test_without_a_file_the_last_reply_is_the_answer(confined: vf.Runtime) -> None:
    assert await score(confined, reply="42") == (1.0, {"source": "reply", "reason": "equal"})
    assert await score(confined, reply="43") == (0.0, {"source": "reply", "reason": "different"})
    assert await score(confined, reply="") == (0.0, {"source": "reply", "reason": "empty"})


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ("ln -s /tmp/other /app/answer.txt; echo 42 > /tmp/other", "symlink"),
        ("ln -s /nowhere /app/answer.txt", "symlink"),
        ("mkfifo /app/answer.txt", "not_a_file"),
        ("mkdir /app/answer.txt", "not_a_file"),
        ("truncate -s 2G /app/answer.txt", "oversized"),
        ("head -c 65537 /dev/zero | tr '\\0' 4 > /app/answer.txt", "oversized"),
        ("printf '42\\0' > /app/answer.txt", "binary"),
        ("printf '42\\377' > /app/answer.txt", "binary"),
        ("printf ' \\n' > /app/answer.txt", "empty"),
        (": > /app/answer.txt", "empty"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_a_zero_with_its_reason(
    box: vf.Runtime, planted: str, reason: str
) -> None:
    done = await box.run(["sh", "-c", f"mkdir -p /app && rm -rf {PATH} && {planted}"], {})
    assert done.exit_code == 0, done.stderr
    assert await score(box, reply="42") == (0.0, {"source": "file", "reason": reason})


async def test_a_file_that_the_scorer_may_not_read_is_a_zero(confined: vf.Runtime) -> None:
    await confined.run(["sh", "-c", "echo 42 > /app/answer.txt; chmod 000 /app/answer.txt"], {})
    assert await score(confined) == (0.0, {"source": "file", "reason": "unreadable"})


async def test_the_largest_answer_that_is_read_has_64_kib(confined: vf.Runtime) -> None:
    text = "x" * (64 * 1024)
    await confined.write(PATH, text.encode())
    assert await score(confined, text) == (1.0, {"source": "file", "reason": "equal"})


async def test_an_answer_in_another_language_arrives_intact(box: vf.Runtime) -> None:
    await box.write("/tmp/ответ", "Zürich → 東京".encode())
    assert await score(box, "Zürich → 東京", path="/tmp/ответ") == (1.0, {"source": "file", "reason": "equal"})


async def test_a_sandbox_that_is_gone_is_an_error(confined: vf.Runtime) -> None:
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await score(confined, reply="42")


@pytest.mark.podman
async def test_a_container_that_is_gone_is_an_error_and_no_missing_answer(container: vf.Runtime) -> None:
    backend_of(container).cleanup()
    with pytest.raises(vf.SandboxError, match="is gone"):
        await score(container, reply="42")


@pytest.mark.parametrize("answer", [None, "", " "])
async def test_a_task_without_an_answer_is_an_error(confined: vf.Runtime, answer: str | None) -> None:
    with pytest.raises(vf.TaskError, match="needs a task with an answer"):
        await score(confined, answer)


@pytest.mark.parametrize("path", ["", "/app/", "answers/"])
def test_an_answer_path_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="answer_path"):
        AnswerConfig(answer_path=path)
