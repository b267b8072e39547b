"""A server on this machine with the packages of OpenCode and ripgrep, under the paths that the npm registry has."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opencode_env.agents.named.npm import run_npm
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, RIPGREP_VERSION, host_platform


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@contextmanager
def package_mirror() -> Iterator[str]:
    """The address of the server; the packages come from the registry, through npm and its cache."""
    platform = host_platform()
    with tempfile.TemporaryDirectory(prefix="mirror-") as root:
        for package, version in ((platform.package, DEFAULT_VERSION), (platform.ripgrep_package, RIPGREP_VERSION)):
            folder = Path(root, package, "-")
            folder.mkdir(parents=True)
            run_npm(["pack", f"{package}@{version}", "--silent", "--pack-destination", root], Path(root), package)
            (archive,) = Path(root).glob("*.tgz")
            archive.rename(folder / f"{package.rpartition('/')[2]}-{version}.tgz")
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=root)) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()
