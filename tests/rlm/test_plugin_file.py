"""`rlm.js` by itself, run by the OpenCode binary as a JavaScript runtime against a scripted model."""

import asyncio
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import opencode_rlm
import pytest
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, Reply, ScriptedModel

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

PROGRAMS = Path(opencode_rlm.__file__).parent / "programs"


@cache
def binary() -> Path:
    """The cached OpenCode binary."""
    return ensure_build(DEFAULT_VERSION, host_platform()).directory / "opencode"


@dataclass(frozen=True)
class Ran:
    """What a program printed."""

    code: int
    out: str
    err: str


async def javascript(source: str, directory: Path, *, stdin: str = "") -> Ran:
    """Run a module that imports `rlm.js` from `rlm`."""
    file = directory / "probe.mjs"
    file.write_text(source.replace("'rlm'", f"'{PROGRAMS / 'rlm.js'}'"))
    return await run(["env", "BUN_BE_BUN=1", str(binary()), str(file)], directory, stdin)


async def run(argv: list[str], directory: Path, stdin: str) -> Ran:
    """Run a program to its end."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=-1, stdout=-1, stderr=-1, cwd=directory, env={"PATH": os.environ["PATH"], "HOME": str(directory)}
    )
    out, err = await process.communicate(stdin.encode())
    return Ran(process.returncode or 0, out.decode(), err.decode())


async def value_of(expression: str, directory: Path) -> Any:
    """The value of a JavaScript expression in which `rlm` is the module."""
    source = f"import * as rlm from 'rlm'\nconsole.log(JSON.stringify({expression}))"
    ran = await javascript(source, directory)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


async def test_arguments_become_one_call_per_prompt_or_per_prompt_and_file(tmp_path: Path) -> None:
    items = await value_of(
        "[rlm.itemsOf({prompt:'a'}), rlm.itemsOf({prompts:['a','b'],files:['x','y']}),"
        "rlm.itemsOf({prompts:['a','b'],files:['x','y'],per_file:true,system:'s'})]",
        tmp_path,
    )
    assert items[0] == [{"prompt": "a", "files": []}]
    assert [item["files"] for item in items[1]] == [["x", "y"], ["x", "y"]]
    assert [(item["prompt"], item["files"], item["system"]) for item in items[2]] == [
        ("a", ["x"], "s"),
        ("a", ["y"], "s"),
        ("b", ["x"], "s"),
        ("b", ["y"], "s"),
    ]


async def test_a_rendered_batch_never_exceeds_its_limit_and_names_the_file(tmp_path: Path) -> None:
    rendered = await value_of(
        "[200, 500, 2000].flatMap((limit) => [1, 3, 40].map((count) => ({limit, text: rlm.render("
        "Array.from({length: count}, (_, n) => n % 2 ? {error: 'e'.repeat(300)} : {answer: 'a'.repeat(900)}), limit,"
        "() => '/answers/1.txt')})))",
        tmp_path,
    )
    for one in rendered:
        assert len(one["text"]) <= one["limit"]
        if one["limit"] < 2000 or len(one["text"]) > 901:
            assert "/answers/1.txt" in one["text"]


async def test_a_stream_is_read_to_its_text_and_an_error_inside_it_is_an_error(tmp_path: Path) -> None:
    event = 'data: {"choices":[{"delta":{"content":"%s"}}]}\\n\\n'
    good = f"rlm.textOfStream('{event % 'a'}: ping\\n\\n{event % 'b'}data: [DONE]\\n\\n')"
    broken = 'data: {"error":{"message":"cut"}}\\n\\n'
    bad = f"(() => {{ try {{ rlm.textOfStream('{broken}') }} catch (e) {{ return e.message }} }})()"
    assert await value_of(f"[{good}, {bad}]", tmp_path) == ["ab", "cut"]


async def test_words_and_options_of_the_command_are_told_apart(tmp_path: Path) -> None:
    parsed = await value_of("rlm.parseArguments(['-s','sys','-f','a','--file','b','one','two','--','-x'])", tmp_path)
    assert parsed == {"batch": False, "files": ["a", "b"], "words": ["one", "two", "-x"], "system": "sys"}


def _policy(request: ChatRequest) -> Reply:
    plans = {
        "busy": (Fault(kind=FaultKind.STATUS, status=429, attempts=1),),
        "cut": (Fault(kind=FaultKind.CUT, after=0, attempts=1),),
        "broken": (Fault(kind=FaultKind.STATUS, status=503),),
    }
    faults = next((faults for word, faults in plans.items() if word in request.prompt), ())
    slow = (Fault(kind=FaultKind.DELAY, seconds=0.1),) if "slow" in request.prompt else ()
    return Reply(text=f"echo {request.prompt}", faults=faults + slow)


async def _ask_all(
    directory: Path, model: ScriptedModel, prompts: list[str], parallel: int = 4
) -> list[dict[str, str]]:
    settings = {"endpoint": model.base_url, "secret": "s", "model": "m", "parallel": parallel}
    items = json.dumps([{"prompt": prompt} for prompt in prompts])
    source = (
        "import { askAll } from 'rlm'\nconst each = []\n"
        f"const all = await askAll({json.dumps(settings)}, {items}, {{ each: (r) => each.push(r) }})\n"
        "console.log(JSON.stringify([all, each]))"
    )
    ran = await javascript(source, directory)
    assert ran.code == 0, ran.err
    results, told = json.loads(ran.out)
    assert told == results, "results are told in order"
    answers: list[dict[str, str]] = results
    return answers


async def test_many_calls_run_at_the_same_time_within_bounds_and_answer_in_order(tmp_path: Path) -> None:
    async with ScriptedModel(_policy) as model:
        prompts = [f"slow {number}" if number % 3 else f"{number}" for number in range(12)]
        results = await _ask_all(tmp_path, model, prompts, parallel=4)
        assert [result["answer"] for result in results] == [f"echo {prompt}" for prompt in prompts]
        assert 1 < model.peak_active <= 4


async def test_passing_failures_are_tried_again_and_lasting_ones_are_errors_of_their_call(tmp_path: Path) -> None:
    async with ScriptedModel(_policy) as model:
        busy, broken, fine = await _ask_all(tmp_path, model, ["busy", "broken", "fine"])
        assert busy == {"answer": "echo busy"}
        assert broken["error"].startswith("503: ")
        assert fine == {"answer": "echo fine"}
        tried = [request for request in model.requests if "broken" in str(request.body)]
        assert len(tried) == 3
        assert len({request.headers["idempotency-key"] for request in tried}) == 1
        assert {request.headers["x-rlm-role"] for request in model.requests} == {"sub"}


async def test_an_unreachable_endpoint_is_an_error_and_no_hang(tmp_path: Path) -> None:
    async with ScriptedModel(_policy) as model:
        gone = model.base_url
    settings = json.dumps({"endpoint": gone, "secret": "s", "model": "m", "parallel": 1})
    result = await value_of(f"await rlm.askAll({settings}, [{{prompt: 'x'}}])", tmp_path)
    assert "error" in result[0]


async def test_the_wrapper_finds_program_and_settings_beside_itself_wherever_it_is_called_from(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "bin").mkdir(parents=True)
    (state / "bin" / "llm").write_text((PROGRAMS / "llm.sh").read_text())
    (state / "bin" / "llm").chmod(0o755)
    (state / "rlm.js").write_text((PROGRAMS / "rlm.js").read_text())
    (state / "programs").write_text(f"{binary().parent}\n")
    async with ScriptedModel(_policy) as model:
        settings = {"endpoint": model.base_url, "secret": "s", "model": "m", "parallel": 2}
        (state / "rlm.json").write_text(json.dumps(settings))
        ran = await run([str(state / "bin" / "llm"), "-s", "sys", "hello"], tmp_path, "")
    assert (ran.code, ran.out, ran.err) == (0, "echo hello\n", "")


@pytest.mark.parametrize("arguments", [["--nope"], ["--batch", "word"], ["-f"], [" "]])
async def test_wrong_use_is_exit_code_two_with_the_usage(tmp_path: Path, arguments: list[str]) -> None:
    argv = ["env", "BUN_BE_BUN=1", str(binary()), str(PROGRAMS / "rlm.js"), *arguments]
    ran = await run(argv, tmp_path, "")
    assert (ran.code, ran.out) == (2, "")
    assert "usage: llm" in ran.err
