"""The benchmark's archive: only with its checksum, whole or not at all, once for all who want it at once."""

import hashlib
import stat
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from opencode_openenv.tbench2 import environment
from opencode_openenv.tbench2.environment import downloaded_benchmark

from tests.tbench2.conftest import TASKS, MakeEnvironment


class Served:
    """A directory behind HTTP, and how often each file was asked for."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                asked.append(self.path)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
        Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, path: Path) -> str:
        """Its URL with its checksum."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return f"http://127.0.0.1:{self._server.server_address[1]}/{path.name}#sha256={digest}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The directory `served`."""
    (tmp_path / "served").mkdir()
    server = Served(tmp_path / "served")
    yield server
    server.close()


@pytest.fixture
def archive(served: Served, tmp_path: Path) -> Path:
    """The task directories of the tests as GitHub would zip them."""
    path = tmp_path / "served" / "COMMIT.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for file in sorted(TASKS.rglob("*")):
            if file.is_file():
                packed.write(file, f"terminal-bench-2-COMMIT/{file.relative_to(TASKS)}")
        link = zipfile.ZipInfo("terminal-bench-2-COMMIT/evil")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc")
    return path


def test_an_environment_without_tasks_brings_them(
    make_environment: MakeEnvironment, served: Served, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TB2_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TB2_REPO_URL", served.url(archive))
    assert make_environment("count-lines", tasks_dir=None).state.task_id == "count-lines"
    with ThreadPoolExecutor(8) as pool:
        url, cache = served.url(archive), tmp_path / "other"
        (found,) = set(pool.map(lambda _: downloaded_benchmark(url, cache), range(8)))
    assert (found / "count-lines" / "tests" / "test.sh").stat().st_mode & 0o111
    assert not (found / "evil").exists()
    assert len(served.asked) == 2
    assert [path.name for path in cache.iterdir() if path.is_dir()] == [url.rpartition("=")[2]]


def assert_refused(url: str | None, cache: Path, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        downloaded_benchmark(url, cache)
    assert not [path for path in cache.glob("*") if path.is_dir()]


def test_what_is_not_named_or_not_what_was_named_is_refused(
    served: Served, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, url, zeros = tmp_path / "cache", served.url(archive), f"#sha256={'0' * 64}"
    assert_refused(None, cache, "set TB2_TASKS_DIR")
    assert_refused(url.partition("#")[0], cache, "names no checksum")
    assert_refused(url.partition("#")[0] + zeros, cache, "serves an archive with the checksum")
    assert_refused(f"http://127.0.0.1:9/x.zip{zeros}", cache, "cannot be downloaded")
    assert_refused(f"nowhere{zeros}", cache, "TB2_REPO_URL nowhere cannot be downloaded")
    monkeypatch.setattr(environment, "MAX_UNPACKED_BYTES", 10)
    assert_refused(url, cache, "unpacks to more")
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("../outside", "x")
    assert_refused(served.url(archive), cache, "leads out of it")
    archive.write_bytes(b"this is not an archive")
    assert_refused(served.url(archive), cache, "no sound zip archive")
    monkeypatch.setattr(environment, "MAX_DOWNLOAD_BYTES", 10)
    assert_refused(served.url(archive), cache, "larger than 10 bytes")
    assert not (tmp_path / "outside").exists()


def encrypted(packed: zipfile.ZipFile) -> None:
    """A member that asks for a password."""
    packed.writestr("a", "x")
    packed.filelist[0].flag_bits |= 1


def of_no_known_compression(packed: zipfile.ZipFile) -> None:
    """A member that nothing here unpacks."""
    packed.writestr("a", "x")
    packed.filelist[0].compress_type = 99


def in_a_file(packed: zipfile.ZipFile) -> None:
    """A member below another that is a file."""
    packed.writestr("a", "x")
    packed.writestr("a/b", "x")


def larger_than_it_says(packed: zipfile.ZipFile) -> None:
    """A member that unpacks to more than its entry names."""
    packed.writestr("a", "x" * 100_000, zipfile.ZIP_DEFLATED)
    packed.filelist[0].file_size = 10


@pytest.mark.parametrize("odd", [encrypted, of_no_known_compression, in_a_file, larger_than_it_says])
def test_an_odd_archive_is_refused_and_leaves_nothing(
    served: Served, tmp_path: Path, odd: Callable[[zipfile.ZipFile], None]
) -> None:
    path, cache = tmp_path / "served" / "odd.zip", tmp_path / "cache"
    with zipfile.ZipFile(path, "w") as packed:
        odd(packed)
    digest = served.url(path).rpartition("=")[2]
    (cache / f".{digest}-killed").mkdir(parents=True)
    assert_refused(served.url(path), cache, "no sound zip archive")
