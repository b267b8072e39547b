"""`opencode.json` is built by one pure function, and nothing in its values is ever substituted."""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.config import STATE_VARIABLE, build_config, merge, render_config
from pydantic import ValidationError

SUBSTITUTION = re.compile(r"\{(?:env|file):[^}]*\}")
"""What OpenCode replaces in the raw text of a configuration file."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TRAPS = st.sampled_from(["{env:HOME}", "{file:/etc/passwd}", "{{env:A}}", "\\{env:A}", "{env:", '"{file:a}', "\ue000"])


def built(model: str = "m", secret: str = "s", window: int | None = None, **config: Any) -> dict[str, Any]:
    return build_config(
        OpenCodeHarnessConfig(id="opencode-env", **config),
        model=model,
        endpoint="http://127.0.0.1:9/v1",
        secret=secret,
        mcp_servers={"search": "http://127.0.0.1:8/mcp"},
        mcp_headers={"search": {"x-key": "value"}},
        window=window,
    )


@given(JSON, st.lists(TRAPS | st.text(), max_size=4).map("".join))
def test_rendering_keeps_every_value_and_hides_every_substitution(value: Any, text: str) -> None:
    config = {"value": value, text: [text]}
    rendered = render_config(config)
    assert json.loads(rendered) == config
    assert not SUBSTITUTION.search(rendered)


def test_the_only_substitution_is_our_own_state_directory() -> None:
    prompt: dict[str, Any] = {"system_prompt": "{file:/etc/passwd}", "system_prompt_mode": "replace"}
    rendered = render_config(built(secret="{env:HOME}", **prompt))
    assert SUBSTITUTION.findall(rendered) == ["{env:" + STATE_VARIABLE + "}"]
    assert json.loads(rendered)["plugin"][0][0] == "file://{env:" + STATE_VARIABLE + "}/plugin.js"


def test_the_provider_waits_as_long_as_the_configuration_says_and_nothing_else_can_cut_a_call() -> None:
    options = built(provider_timeout=90.5)["provider"]["intercepted"]["options"]
    assert [options[name] for name in ("timeout", "headerTimeout", "chunkTimeout")] == [90_500, False, False]


def test_a_dead_connection_is_given_up_where_the_call_can_be_sent_again() -> None:
    config = build_config(
        OpenCodeHarnessConfig(id="opencode-env"), model="m", endpoint="e", secret="s", mcp_servers={}, repeats=True
    )
    options = config["provider"]["intercepted"]["options"]
    assert (options["headerTimeout"], options["chunkTimeout"]) == (600_000, 60_000)
    assert config["plugin"][0][1] == {"repeats": True, "task": True, "summary": None}


def test_no_other_provider_and_no_background_work_is_on() -> None:
    config = built("org/model:tag")
    assert config["model"] == config["small_model"] == "intercepted/org/model:tag"
    assert config["enabled_providers"] == ["intercepted"]
    assert config["agent"]["title"] == {"disable": True}
    off = {"share": "disabled", "autoupdate": False, "snapshot": False, "lsp": False, "formatter": False}
    assert {key: config[key] for key in off} == off


def test_every_permission_is_decided() -> None:
    def decisions(value: Any) -> list[str]:
        return [value] if isinstance(value, str) else [word for item in value.values() for word in decisions(item)]

    assert set(decisions(built()["permission"])) == {"allow"}


def test_disabled_tools_are_off_and_none_disables_nothing() -> None:
    assert built()["agent"]["build"]["tools"] == {"question": False, "task": False}
    assert built(disabled_tools=["WebFetch"])["agent"]["build"]["tools"] == {"webfetch": False}
    assert built(disabled_tools=None)["agent"]["build"]["tools"] == {}


def test_a_system_prompt_replaces_only_when_told_to() -> None:
    assert "prompt" not in built(system_prompt="Mine.")["agent"]["build"]
    assert built(system_prompt="Mine.", system_prompt_mode="replace")["agent"]["build"]["prompt"] == "Mine."


def test_compaction_and_interleaved_reasoning_can_be_switched() -> None:
    model = built()["provider"]["intercepted"]["models"]["m"]
    assert built()["compaction"] == {"auto": False, "prune": False}
    assert model["interleaved"] == {"field": "reasoning_content"}
    assert built(disable_compaction=False)["compaction"]["auto"] is True
    assert "interleaved" not in built(enable_interleaved=False)["provider"]["intercepted"]["models"]["m"]


def test_a_tool_server_has_its_url_its_headers_and_no_sign_in() -> None:
    server = built()["mcp"]["search"]
    assert (server["url"], server["headers"]) == ("http://127.0.0.1:8/mcp", {"x-key": "value"})
    assert (server["type"], server["oauth"], server["enabled"]) == ("remote", False, True)


def test_a_users_own_keys_come_last_and_deep() -> None:
    config = built(opencode_config={"agent": {"build": {"temperature": 0.5}}, "share": "manual", "plugin": []})
    assert config["agent"]["build"]["temperature"] == 0.5
    assert config["agent"]["build"]["tools"] == {"question": False, "task": False}
    assert (config["share"], config["plugin"]) == ("manual", [])


@given(st.dictionaries(st.text(), JSON), st.dictionaries(st.text(), JSON))
def test_merging_keeps_what_the_upper_layer_does_not_name(base: dict[str, Any], over: dict[str, Any]) -> None:
    merged = merge(base, over)
    assert set(merged) == set(base) | set(over)
    assert all(merged[key] == base[key] for key in base.keys() - over.keys())
    assert merge(merged, over) == merged


@pytest.mark.parametrize(
    "wrong",
    [
        *({"asset_dir": "opencode"}, {"agent_workdir": "app"}, {"provider_timeout": 0}, {"provider_timeout": math.inf}),
        *({"version": "latest"}, {"install": "curl"}, {"no_such_option": 1}),
    ],
    ids=str,
)
def test_an_impossible_option_is_refused_when_it_is_read(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenCodeHarnessConfig(id="opencode-env", **wrong)
