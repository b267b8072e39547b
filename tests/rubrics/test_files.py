"""Files go into a sandbox of any kind and come out of it, whatever stands there; what comes out is bounded."""

import pickle
from pathlib import Path

import pytest
import verifiers.v1 as vf
from opencode_rubrics import FileState, SandboxFileError, read_file, upload_bundle, upload_content, upload_file

ODD = {
    "-rf": b"dash",
    "a b/c\td": b"blanks",
    "new\nline": b"newline",
    "é/$(id)`'\"\\": b"signs",
    ".hidden/.x": b"hidden",
    "deep/" * 30 + "file": b"deep",
    "n" * 200: b"long",
}


async def shell(box: vf.Runtime, command: str) -> str:
    """Output of a shell command that succeeds."""
    done = await box.run(["sh", "-c", command], {})
    assert done.exit_code == 0, done.stderr
    return done.stdout


async def test_a_file_and_a_text_arrive_as_they_are(box: vf.Runtime, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    await upload_file(box, "/tmp/made/program", program)
    assert await shell(box, "/tmp/made/program") == "ran\n"
    await upload_content(box, "é\n", "/tmp/made/text")
    assert await read_file(box, "/tmp/made/text") == "é\n".encode()


@pytest.mark.parametrize("padding", [0, 300_000], ids=["in one command", "as one upload"])
async def test_a_bundle_arrives_whole_whatever_its_names(box: vf.Runtime, tmp_path: Path, padding: int) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o700)
    noise = b"".join(number.to_bytes(4) for number in range(0, padding * 7919, 7919))
    await upload_bundle(box, {**ODD, "text": "é", "bin/program": program, "noise": noise}, "/tmp/made/bundle")
    for name, content in ODD.items():
        assert await read_file(box, f"/tmp/made/bundle/{name}") == content
    assert await read_file(box, "/tmp/made/bundle/text") == "é".encode()
    assert await read_file(box, "/tmp/made/bundle/noise", len(noise) or 1) == noise
    assert (
        await shell(box, "/tmp/made/bundle/bin/program && ls -Aq /tmp/made/bundle | wc -l") == f"ran\n{len(ODD) + 3}\n"
    )


async def test_a_bundle_follows_no_link_and_replaces_what_is_there(box: vf.Runtime) -> None:
    await shell(
        box,
        "mkdir -p /tmp/away/deeper /tmp/here && cd /tmp/here && ln -s /tmp/away folder && echo old >/tmp/away/kept "
        "&& ln -s /tmp/away/kept file && echo old >plain && chmod 600 plain",
    )
    await upload_bundle(box, {"folder/deeper/new": "n", "file": "f", "plain": "p"}, "/tmp/here")
    assert await shell(box, "cat /tmp/here/folder/deeper/new /tmp/here/file /tmp/here/plain") == "nfp"
    assert await shell(box, "cat /tmp/away/kept; find /tmp/away -type f") == "old\n/tmp/away/kept\n"
    assert await shell(box, "stat -c %a /tmp/here/plain /tmp/here/folder") == "644\n755\n"


async def test_what_stands_in_the_way_of_a_bundle_is_the_error_that_was_asked_for(box: vf.Runtime) -> None:
    await shell(box, "mkdir -p /tmp/full/name/taken")
    with pytest.raises(vf.TaskError, match=r"/tmp/full could not be filled .*name"):
        await upload_bundle(box, {"name": "content"}, "/tmp/full", error=vf.TaskError)
    with pytest.raises(vf.SandboxError, match=r"no tests .*name"):
        await upload_bundle(box, {"name": "content"}, "/tmp/full", failure="no tests")


@pytest.mark.parametrize(
    ("made", "state"),
    [
        ("true", FileState.ABSENT),
        ("ln -s /etc/passwd /tmp/read/it", FileState.SYMLINK),
        ("mkfifo /tmp/read/it", FileState.NOT_A_FILE),
        ("mkdir /tmp/read/it", FileState.NOT_A_FILE),
        ("head -c 1025 /dev/zero >/tmp/read/it", FileState.OVERSIZED),
    ],
)
async def test_what_is_no_file_of_bounded_size_is_a_typed_error(box: vf.Runtime, made: str, state: FileState) -> None:
    await shell(box, f"rm -rf /tmp/read && mkdir /tmp/read && {made}")
    with pytest.raises(SandboxFileError, match="/tmp/read/it") as raised:
        await read_file(box, "/tmp/read/it", 1024)
    assert raised.value.state is state
    assert pickle.loads(pickle.dumps(raised.value)).state is state


async def test_a_file_of_just_the_size_is_read_to_its_last_byte(box: vf.Runtime) -> None:
    content = bytes(range(256)) * 20_000
    await upload_content(box, content, "/tmp/bytes")
    assert await read_file(box, "/tmp/bytes", len(content)) == content


async def test_a_bundle_of_nothing_does_nothing_and_names_are_checked_before_anything_is_sent(
    confined: vf.Runtime, tmp_path: Path
) -> None:
    await upload_bundle(confined, {}, "/tmp/none")
    for name in ("", "/abs", "../out", "a/../b", "./a", "a//b", "a/", "nul\0"):
        with pytest.raises(ValueError, match="not a path below"):
            await upload_bundle(confined, {"fine": "", name: ""}, "/tmp/none")
    with pytest.raises(ValueError, match="a file and a directory"):
        await upload_bundle(confined, {"a": "", "a/b": ""}, "/tmp/none")
    with pytest.raises(ValueError, match="relative"):
        await read_file(confined, "report.txt")
    with pytest.raises(IsADirectoryError):
        await upload_bundle(confined, {"a": tmp_path}, "/tmp/none")
    assert (await confined.run(["test", "-e", "/tmp/none"], {})).exit_code == 1
