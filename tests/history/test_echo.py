"""OpenCode's rules: what is the echo of an answer, and what is a change of the history."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencode_env.agents.opencode import echo as echoes
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from opencode_env.agents.opencode.echo import JAVASCRIPT_SPACE, MOST_COMMAS, OpenCodeEcho, parse_json, written
from verifiers.v1.types import AssistantMessage, ToolCall

from tests.support.child import child

RULES = OpenCodeEcho()


def answer(*calls: tuple[str, str, str], **said: Any) -> AssistantMessage:
    """An answer with calls, each (id, name, arguments)."""
    made = [ToolCall(id=identity, name=name, arguments=arguments) for identity, name, arguments in calls]
    return AssistantMessage(tool_calls=made or None, **said)


def echo(*calls: tuple[str, str, str], content: str = "", reasoning: str = "") -> dict[str, Any]:
    """What OpenCode sends of one."""
    made: dict[str, Any] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    functions = [(identity, {"name": name, "arguments": arguments}) for identity, name, arguments in calls]
    if calls:
        made["tool_calls"] = [{"id": own, "type": "function", "function": function} for own, function in functions]
    return made


def is_echo(sampled: str, echoed: str, *, name: str = "bash", echoed_name: str = "bash") -> bool:
    found = RULES.recognise(answer(("c", name, sampled)), echo(("c", echoed_name, echoed)))
    assert found in (None, ["c"])
    return found is not None


SPELLINGS = [
    ('{ "a" : 1 ,"b":2}', '{"a":1,"b":2}'),
    ('{"b":2,"a":1}', '{"a":1,"b":2}'),
    ('{"a":"\\u0041\\/"}', '{"a":"A/"}'),
    ('{"a":1,"a":2}', '{"a":2}'),
    ('{"a":5000.0}', '{"a":5000}'),
    ('{"a":5e3}', '{"a":5000}'),
    ('{"a":1.50}', '{"a":1.5}'),
    ('{"a":-0}', '{"a":0}'),
    ('{"a":1e400}', '{"a":null}'),
    ('{"a":12345678901234567890}', '{"a":12345678901234567000}'),
    ("", "{}"),
    (" \ufeff", "{}"),
    ("null", '{"value":null}'),
    ("[1.0]", '{"value":[1]}'),
    ('"x"', '{"value":"x"}'),
]


@pytest.mark.parametrize(("sampled", "echoed"), SPELLINGS)
def test_another_spelling_of_the_same_value_is_an_echo(sampled: str, echoed: str) -> None:
    assert is_echo(sampled, echoed)


@pytest.mark.parametrize(
    ("sampled", "echoed"),
    [
        ('{"a":1}', '{"a":2}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":0}', '{"a":false}'),
        ('{"a":"1"}', '{"a":1}'),
        ('{"a":1}', "{}"),
        ('{"a":null}', "{}"),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":9007199254740993}', '{"a":9007199254740994}'),
        ("{", "{}"),
        ('{"a":1}', "not JSON"),
        ("x", '{"tool":"bash","error":"no"}'),
    ],
)
def test_another_value_is_a_change(sampled: str, echoed: str) -> None:
    assert not is_echo(sampled, echoed)


@pytest.mark.parametrize(
    ("sampled", "echoed"),
    [
        ("{}}", "{}"),
        ('{"a":1.0} and more', '{"a":1}'),
        ('[1]{"a":1}', '{"value":[1]}'),
        ("599", '{"value":5}'),
        (" -1.5e3", '{"value":-1.5}'),
        ('"x"y', '{"value":"x"}'),
    ],
)
def test_a_call_is_complete_as_soon_as_its_arguments_are_json(sampled: str, echoed: str) -> None:
    assert is_echo(sampled, echoed)
    assert not is_echo(sampled, '{"a":2}')


@pytest.mark.parametrize(("name", "arguments"), [("nothing", "{}"), (" bash ", "{}"), ("bash", "{"), ("bash", "NaN")])
def test_a_call_that_could_not_run_is_one_of_the_tool_invalid(name: str, arguments: str) -> None:
    for tool, found in ((name, True), ("another", False), (1, False)):
        refusal = json.dumps({"tool": tool, "error": "what is wrong"})
        assert is_echo(arguments, refusal, name=name, echoed_name="invalid") == found


def test_a_tool_is_found_whatever_the_case_of_its_name() -> None:
    assert is_echo('{"a":1.0}', '{"a":1}', name="Bash")
    assert is_echo("{bad", '{"value":"{bad"}', name="Bash", echoed_name="Bash")
    assert is_echo('{"__proto__":1}', '{"value":"{\\"__proto__\\":1}"}', name="Bash", echoed_name="Bash")
    assert not is_echo("{}", "{}", name="bash", echoed_name="Bash")
    assert not is_echo("{}", "{}", name="read", echoed_name="bash")


def test_calls_are_found_by_their_ids_in_any_order() -> None:
    sampled = answer(("x", "bash", "{}"), ("y", "read", "{}"))
    assert RULES.recognise(sampled, echo(("y", "read", "{}"), ("x", "bash", "{}"))) == ["y", "x"]
    assert RULES.recognise(sampled, echo(("y", "bash", "{}"), ("x", "read", "{}"))) is None
    assert RULES.recognise(sampled, echo(("x", "bash", "{}"))) is None
    assert RULES.recognise(sampled, echo()) is None


def test_of_two_calls_with_one_id_either_may_come_back() -> None:
    sampled = answer(("x", "bash", '{"a":1}'), ("x", "bash", '{"a":2}'))
    mixed = answer(("x", "Tell", "{}"), ("x", "bash", '{"a":1.0}'))
    for one, name, value, found in (
        (sampled, "bash", 2, ["x"]),
        (sampled, "bash", 1, ["x"]),
        (sampled, "bash", 3, None),
        (mixed, "tell", 1, ["x"]),
        (mixed, "invalid", 1, ["x"]),
        (mixed, "read", 1, None),
        (mixed, "tell", 2, None),
        (answer(("x", "Tell", "{}"), ("y", "bash", '{"a":1}')), "tell", 1, None),
    ):
        assert RULES.recognise(one, echo(("x", name, f'{{"a":{value}}}'))) == found, (one, name, value)
    both = echo(("x", "bash", '{"a":2}'), ("x", "bash", '{"a":1}'))
    assert RULES.recognise(sampled, both) == ["x", "x"]
    assert RULES.recognise(answer(("x", "bash", '{"a":1}')), both) is None


def test_ids_that_a_family_of_models_gets_otherwise_are_found_again() -> None:
    two = answer(("call_abcdefg1", "bash", '{"a":1}'), ("call_abcdefg2", "bash", '{"a":2}'))
    cut = echo(("callabcde", "bash", '{"a":1}'), ("callabcde", "bash", '{"a":2}'))
    assert RULES.recognise(two, cut) == ["call_abcdefg1", "call_abcdefg2"]
    for identity, found in (("a_b", ["a:b"]), ("a_c", None)):
        assert RULES.recognise(answer(("a:b", "bash", "{}")), echo((identity, "bash", "{}"))) == found


def test_text_and_reasoning_must_be_the_same() -> None:
    assert RULES.recognise(answer(content="a"), echo(content="a")) == []
    assert RULES.recognise(answer(content="a"), echo(content="b")) is None
    assert RULES.recognise(answer(content=None, reasoning_content="r"), echo(reasoning="r")) == []
    assert RULES.recognise(answer(content="a", reasoning_content="r"), echo(content="a")) is None
    assert RULES.recognise(answer(content="a"), echo(content="a", reasoning="r")) is None
    details = answer(content="a", reasoning_content="r", provider_state=[{"type": "reasoning.text", "text": "r"}])
    assert RULES.recognise(details, echo(content="a")) == []


def test_only_an_answer_that_says_nothing_is_left_out() -> None:
    assert RULES.leaves_out(answer())
    assert RULES.leaves_out(answer(content=""))
    assert not RULES.leaves_out(answer(content=" "))
    assert not RULES.leaves_out(answer(reasoning_content="r"))
    assert not RULES.leaves_out(answer(("x", "bash", "{}")))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
TEXTS = st.one_of(
    VALUES.map(lambda value: json.dumps(value, ensure_ascii=False)),
    VALUES.map(lambda value: json.dumps(value, indent=1)),
    st.text(alphabet='{}[]",:0123456789.eE+-\\u\n\ttruefalsn NaI', max_size=20),
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
)

READER = """
for await (const line of console) {
  let seen = null
  try { seen = JSON.stringify(JSON.parse(JSON.parse(line))) } catch {}
  console.log(JSON.stringify(seen))
}
"""


@pytest.fixture(scope="module")
def javascript(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What OpenCode's own JavaScript engine makes of a text: parsed and written again, or None."""
    program = tmp_path_factory.mktemp("javascript") / "reader.js"
    program.write_text(READER)
    binary = ensure_build(DEFAULT_VERSION, host_platform()).directory / "opencode"
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with child(binary, program, bufsize=1, env={**os.environ, "BUN_BE_BUN": "1"}, **streams) as engine:
        asked, answered = engine.stdin, engine.stdout
        assert asked is not None
        assert answered is not None

        def read(text: str) -> str | None:
            asked.write(json.dumps(text) + "\n")
            asked.flush()
            found: str | None = json.loads(answered.readline())
            return found

        yield read
        asked.close()


@pytest.mark.opencode
def test_texts_are_read_as_opencodes_javascript_reads_them(javascript: Any) -> None:
    @given(TEXTS)
    def agrees(text: str) -> None:
        spelled = javascript(text)
        try:
            own = parse_json(text)
        except ValueError:
            assert spelled is None
            return
        assert spelled is not None
        assert written(own) == written(parse_json(spelled))

    agrees()
    for sampled, _ in SPELLINGS:
        if sampled.strip(JAVASCRIPT_SPACE):
            read = parse_json(javascript(sampled))
            assert written(parse_json(sampled)) == written(read)


def test_arguments_of_more_values_than_an_answer_can_hold_come_back_as_the_same_text_alone() -> None:
    text = json.dumps([1] * (MOST_COMMAS + 2))
    assert RULES.recognise(answer(("a", "nothing", text)), echo(("a", "nothing", text))) == ["a"]
    assert RULES.recognise(answer(("a", "nothing", text)), echo(("a", "nothing", f"{text} "))) is None


def test_many_calls_of_one_id_are_read_once_each_also_when_what_comes_is_no_echo_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Counter[str]()
    beginnings = echoes.beginnings

    def counted(text: str) -> Iterator[Any]:
        read[text] += 1
        return beginnings(text)

    monkeypatch.setattr(echoes, "beginnings", counted)
    many = answer(*[("same", "nothing", "1" * 390 + f" {number}") for number in range(50)])
    for number in range(5):
        assert RULES.recognise(many, echo(("same", "nothing", f'{{"value":{number}.5}}'))) is None
    assert RULES.recognise(many, echo(("same", "nothing", '{"value":11}'))) == ["same"]
    assert len(read) == 50
    assert set(read.values()) == {1}
