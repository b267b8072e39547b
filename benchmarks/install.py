"""What it costs to bring OpenCode into remote sandboxes, by way, and what a thousand of them cost.

The real SDK against the local server that speaks Prime's API; behind each sandbox is a real confined one. `image` finds
what its image holds; `download` fetches the packages from a mirror on this machine; `upload` sends them packed and in
pieces; the baseline `plain` writes the two programs as they are, as verifiers' runtimes do. Network and disk are those
of one machine, so the seconds are what the ways cost beside the transfer itself, which the bytes tell: `line` is what
the slowest common stretch of 1 Gbit/s takes for a thousand.

Run: uv run python benchmarks/install.py [--json] [--sandboxes 3]
"""

import argparse
import asyncio
import logging
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, CachedBuild, ensure_build, host_platform, packed_build
from opencode_env.agents.opencode.install import InstallRecord, install
from rollout_sandbox.confined import Bind
from rollout_sandbox.prime import provision_prime
from verifiers.v1.runtimes import PrimeConfig, Runtime

from benchmarks._measure import Cost, adopt_orphans, machine, measured, report
from tests.support.package_mirror import package_mirror
from tests.support.prime_api import PrimeApi

GOALS = {"uploaded_share_of_plain": 0.4, "requests_with_an_image": 1.0}

PREPARED, BARE = "registry.example/prepared", "registry.example/bare"
PLACE = "/tmp/programs"
"""Where a sandbox of the local server can be written."""
LINE_BYTES_PER_S = 1e9 / 8

Way = Callable[[Runtime, InstallRecord], Awaitable[object]]


@dataclass
class Figures:
    """Of one way, each the median of its sandboxes."""

    seconds: float
    cpu: float
    """Seconds, of the sandbox's whole life and of the server."""
    moved: float
    """Bytes into one sandbox, whoever sent them."""
    requests: float
    """To the platform."""
    stages: dict[str, float]

    def said(self, through: str) -> str:
        """In words, with a thousand of them."""
        stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.stages.items())
        thousand = self.moved * 1000
        each = f"{self.seconds:.2f} s ({stages or 'in one'}), {self.cpu:.1f} CPU-s, {self.requests:g} requests"
        line = f"{thousand / 1e9:.1f} GB {through}, line {thousand / LINE_BYTES_PER_S:.0f} s"
        return f"{each}, {self.moved / 1e6:.1f} MB; a thousand: {line}"


async def figures_of(api: PrimeApi, image: str, way: Way, count: int) -> Figures:
    """Let sandboxes of an image get OpenCode, one after the other."""
    walls, cpus, records, requests, sent = [], [], [], [], []
    for _ in range(count):
        with measured(cost := Cost()):
            async with provision_prime(PrimeConfig(image=image), 60) as box:
                before, bytes_before, started = api.requests.total(), api.received_bytes, time.monotonic()
                await way(box, record := InstallRecord())
                walls.append(time.monotonic() - started)
                requests.append(api.requests.total() - before)
                sent.append(api.received_bytes - bytes_before)
                records.append(record)
        cpus.append(cost.cpu)
    stages = {name: statistics.median(one.seconds[name] for one in records) for name in records[0].seconds}
    moved = statistics.median(max(one.bytes, sent[index]) for index, one in enumerate(records))
    return Figures(statistics.median(walls), statistics.median(cpus), moved, statistics.median(requests), stages)


def ways(build: CachedBuild, address: str) -> dict[str, tuple[str, Way]]:
    """The image and the doing of each way."""
    installed = {
        "image": OpenCodeHarnessConfig(id="opencode-env", install="image"),
        "download": OpenCodeHarnessConfig(id="opencode-env", install="download", asset_dir=PLACE, mirror=address),
        "upload": OpenCodeHarnessConfig(id="opencode-env", install="upload", asset_dir=PLACE),
    }

    def by(config: OpenCodeHarnessConfig) -> Way:
        return lambda box, record: install(config, box, trust_image=False, record=record)

    async def plain(box: Runtime, record: InstallRecord) -> None:
        for name in ("opencode", "rg"):
            await box.write(f"{PLACE}/{name}", (build.directory / name).read_bytes())

    found: dict[str, tuple[str, Way]] = {
        name: (PREPARED if name == "image" else BARE, by(config)) for name, config in installed.items()
    }
    return {**found, "plain": (BARE, plain)}


async def measure(count: int) -> dict[str, Figures]:
    """The figures of each way."""
    build = ensure_build(DEFAULT_VERSION, host_platform())
    packed_build(build)
    with package_mirror() as address:
        async with PrimeApi({PREPARED: [Bind(build.directory, f"/opencode/{build.directory.name}")]}) as api:
            os.environ.update(api.environment)
            return {
                name: await figures_of(api, image, way, count) for name, (image, way) in ways(build, address).items()
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--sandboxes", type=int, default=3, help="of each way (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    adopt_orphans()
    figures = asyncio.run(measure(options.sandboxes))
    ratios = {
        "uploaded_share_of_plain": figures["upload"].moved / figures["plain"].moved,
        "requests_with_an_image": figures["image"].requests,
    }
    through = {"image": "of ours (the platform keeps the image)", "download": "from the mirror"}
    detail = {name: one.said(through.get(name, "from this machine")) for name, one in figures.items()}
    report("install", ratios, GOALS, {**detail, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
