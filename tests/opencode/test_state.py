"""The state directory is written in one piece and holds what OpenCode must find on its first start."""

import base64
import io
import json
import tarfile

import pytest
from opencode_env.agents.opencode.state import CONFIG_DIR, Picture, SegmentPrompt, program, segment_files, state_archive
from rollout_sandbox.toolbox.files import archive_arguments


def unpacked(archive: bytes) -> dict[str, bytes | None]:
    """Content by name; None for a directory."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() if file else None for name, file in files.items()}


def test_the_archive_holds_configuration_plugin_and_an_empty_log() -> None:
    content = unpacked(state_archive('{"model": "é"}', "Append \u2028 this.", {}))
    assert content[f"{CONFIG_DIR}/opencode.json"] == '{"model": "é"}'.encode()
    assert json.loads(content["plugin.json"] or b"") == {"append": "Append \u2028 this."}
    assert content["plugin.js"] == program("plugin.js").encode()
    assert content["models.json"] == content["tsconfig.json"] == b"{}"
    assert content["events.jsonl"] == content["stderr.log"] == b""


def test_the_configuration_directory_looks_installed_so_that_the_plugin_waits_for_no_registry() -> None:
    content = unpacked(state_archive("{}", "", {}))
    assert content[f"{CONFIG_DIR}/node_modules"] is None
    lock = json.loads(content[f"{CONFIG_DIR}/package-lock.json"] or b"")
    assert lock == {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "1"}}}}


def test_parents_come_before_what_is_in_them_and_times_do_not_vary() -> None:
    archive = state_archive("{}", "", {})
    names = list(unpacked(archive))
    for name in names:
        parent = name.rpartition("/")[0]
        assert not parent or names.index(parent) < names.index(name)
    assert archive == state_archive("{}", "", {})


@pytest.mark.parametrize("text", ["--help\n é\r\n", "word " * 2_000_000], ids=["odd", "megabytes"])
def test_a_segment_holds_the_prompt_byte_for_byte_and_its_pictures(text: str) -> None:
    content = segment_files(SegmentPrompt(text, (Picture("image-1.png", b"\x00\xff"),)))
    assert content == {"prompt.txt": text.encode(), "pictures/image-1.png": b"\x00\xff"}


def test_the_first_segment_and_further_files_travel_with_the_state() -> None:
    archive = state_archive("{}", "", {"bin/helper": "#!/bin/sh\n", "notes/a": "b"}, SegmentPrompt("Do it."))
    assert unpacked(archive)["prompt.txt"] == b"Do it."
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        modes = {name: tar.getmember(name).mode for name in ("bin", "bin/helper", "notes/a", "prompt.txt")}
    assert modes == {"bin": 0o755, "bin/helper": 0o755, "notes/a": 0o644, "prompt.txt": 0o644}


def test_a_small_archive_travels_on_the_command_line_in_pieces_and_a_large_one_does_not() -> None:
    archive = state_archive("{}", "x" * 30_000, {})
    pieces = archive_arguments(archive)
    assert 0 < max(map(len, pieces)) < 128 * 1024
    assert base64.b64decode("".join(pieces)) == archive
    assert archive_arguments(state_archive("{}", "x" * 10_000_000, {})) == []


def test_a_further_segment_carries_what_its_session_began_with() -> None:
    begun = {"ses_1": {"system": ["You are é.", "And more."], "task": [{"type": "text", "text": "Do it."}]}}
    content = unpacked(state_archive("{}", "", {}, SegmentPrompt("Go on."), begun))
    assert json.loads(content["begun.json"] or b"") == begun
    assert content["store.js"] == program("store.js").encode()
    assert "begun.json" not in unpacked(state_archive("{}", "", {}, SegmentPrompt("Go on.")))
