"""Whatever a model samples is read: a malformed call as a failed one that no tool can run."""

import json
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent.interception.training_client import NAMELESS, lenient
from renderers import GLM45Renderer, GLM45RendererConfig, Qwen3RendererConfig, create_renderer
from renderers.base import ToolCallParseStatus, is_multimodal, load_tokenizer

TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": {}}} for name in ("bash", "read")
]


def read(tokenizer: Path, config: Any, text: str, tools: Any = TOOLS) -> list[tuple[str | None, Any]]:
    """Names and arguments of the calls in what was sampled."""
    loaded = load_tokenizer(str(tokenizer))
    renderer = create_renderer(loaded, lenient(config))
    parsed = renderer.parse_response(loaded.encode(text, add_special_tokens=False), tools=tools, prompt_ids=[])
    assert {call.status for call in parsed.tool_calls} <= {ToolCallParseStatus.OK}
    return [(call.name, call.arguments) for call in parsed.tool_calls]


QWEN3 = {
    '<tool_call>\n{"name": "bash", "arguments": {"a": 5000.0}}\n</tool_call>': ("bash", '{"a": 5000.0}'),
    '<tool_call>{"name": "bash", "arguments": null}</tool_call>': ("bash", "{}"),
    '<tool_call>{"name": "bash", "arguments": "\\ud83dx"}</tool_call>': ("bash", "\ufffdx"),
    '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>': ("nothing", "{}"),
    '<tool_call>{"name": "bash", "arguments": {"a": "b}}</tool_call>': (
        "bash",
        '{"name": "bash", "arguments": {"a": "b}}',
    ),
    '<tool_call>{"name": "bash", "arguments": {}}': ("bash", 'unclosed_block: {"name": "bash", "arguments": {}}'),
    '<tool_call>{"tool": "read", "arguments": {}}</tool_call>': (
        "read",
        'missing_name: {"tool": "read", "arguments": {}}',
    ),
    "<tool_call>null</tool_call>": (NAMELESS, "missing_name: null"),
    "<tool_call></tool_call>": (NAMELESS, "invalid_json: "),
    "<tool_call>what is this</tool_call>": (NAMELESS, "what is this"),
}


@pytest.mark.parametrize("text", QWEN3)
def test_calls_in_json(tokenizer: Path, text: str) -> None:
    assert read(tokenizer, Qwen3RendererConfig(), text) == [QWEN3[text]]


GLM = {
    "<tool_call>bash\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>": ("bash", '{"a": "b"}'),
    "<tool_call>Bash\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>": ("Bash", '{"a": "b"}'),
    "<tool_call>bash\n<arg_key>a</arg_key>\n<arg_value>b": ("bash", "bash\n<arg_key>a</arg_key>\n<arg_value>b"),
    "<tool_call>bash\n<arg_value>b</arg_value></tool_call>": ("bash\n<arg_value>b</arg_value>", "{}"),
    "<tool_call></tool_call>": (NAMELESS, "missing_name: "),
}


@pytest.mark.parametrize("text", GLM)
def test_calls_in_keys_and_values(tokenizer: Path, text: str) -> None:
    assert read(tokenizer, GLM45RendererConfig(), f"</think>{text}") == [GLM[text]]


def test_a_malformed_call_does_not_hide_the_ones_beside_it(tokenizer: Path) -> None:
    fine = '<tool_call>{"name": "read", "arguments": {}}</tool_call>'
    names = [name for name, _ in read(tokenizer, Qwen3RendererConfig(), f"{fine}<tool_call>{{</tool_call>{fine}")]
    assert names == ["read", NAMELESS, "read"]


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000])
def test_what_the_parser_trips_over_is_a_failed_call(tokenizer: Path, value: str) -> None:
    text = f'<tool_call>{{"name": "bash", "arguments": {{"a": {value}}}}}</tool_call>'
    ((name, arguments),) = read(tokenizer, Qwen3RendererConfig(), text)
    assert name == "bash"
    with pytest.raises(json.JSONDecodeError):
        json.loads(arguments)


def test_a_lenient_renderer_is_what_the_models_own_is(tokenizer: Path) -> None:
    loaded = load_tokenizer(str(tokenizer))
    own = create_renderer(loaded, GLM45RendererConfig(enable_thinking=False))
    made = create_renderer(loaded, lenient(GLM45RendererConfig(enable_thinking=False)))
    asked: Any = [{"role": "user", "content": "a question"}]
    assert isinstance(made, GLM45Renderer)
    assert type(made).__name__ == "GLM45Renderer"
    assert is_multimodal(made) is is_multimodal(own)
    assert made.render_ids(asked, add_generation_prompt=True) == own.render_ids(asked, add_generation_prompt=True)


def test_template_arguments_of_a_run_reach_the_models_own_renderer(tokenizer: Path) -> None:
    loaded = load_tokenizer(str(tokenizer))
    made: Any = create_renderer(loaded, lenient(Qwen3RendererConfig()), chat_template_kwargs={"enable_thinking": False})
    assert made.config.enable_thinking is False
    with pytest.raises(ValueError, match="Unsupported chat_template_kwargs for 'qwen3'"):
        create_renderer(loaded, lenient(Qwen3RendererConfig()), chat_template_kwargs={"no_such": 1})


@pytest.mark.parametrize("kind", [Qwen3RendererConfig, GLM45RendererConfig], ids=["qwen3", "glm"])
def test_a_thought_that_ends_without_its_mark_is_continued_as_it_was_sampled(tokenizer: Path, kind: Any) -> None:
    loaded = load_tokenizer(str(tokenizer))
    made = create_renderer(loaded, lenient(kind(thinking_retention="all")))
    own = create_renderer(loaded, kind(thinking_retention="all"))
    prompt = made.render_ids([{"role": "user", "content": "a question"}], add_generation_prompt=True)
    more: Any = [{"role": "user", "content": "go on"}]
    stop = made.get_stop_token_ids()[0]
    thought = loaded.encode("<think>Let me see", add_special_tokens=False)
    closing = loaded.encode("</think>", add_special_tokens=False)
    bridged = made.bridge_to_next_turn(prompt, [*thought, stop], more)
    whole = own.bridge_to_next_turn(prompt, [*thought, *closing, stop], more)
    assert bridged is not None
    assert whole is not None
    behind = len(prompt) + len(thought) + 1
    assert bridged.token_ids == [*prompt, *thought, stop, *whole.token_ids[behind + 1 :]]
    assert bridged.message_indices[behind:] == whole.message_indices[behind + 1 :]
    assert {len(bridged.message_indices), len(bridged.sampled_mask)} == {len(bridged.token_ids)}
    assert len(bridged.is_content) in (0, len(bridged.token_ids))


def test_a_thought_without_its_mark_is_rendered_again_where_earlier_thoughts_are_left_out(tokenizer: Path) -> None:
    loaded = load_tokenizer(str(tokenizer))
    made = create_renderer(loaded, lenient(Qwen3RendererConfig()))
    prompt = made.render_ids([{"role": "user", "content": "a question"}], add_generation_prompt=True)
    thought = loaded.encode("<think>Let me see<|im_end|>", add_special_tokens=False)
    assert made.bridge_to_next_turn(prompt, thought, [{"role": "user", "content": "go on"}]) is None
