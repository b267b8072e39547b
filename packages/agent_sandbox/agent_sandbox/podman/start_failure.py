"""What a failed `podman run` means, and what to change."""

import re

_IMAGE = (
    r"image not known|initializing source|did not resolve to an alias|no such image|manifest unknown"
    r"|unable to copy from source|invalid reference format"
)
_ADVICE = {
    _IMAGE: "the image is not on this machine and cannot be pulled: name one that `podman pull {image}` fetches or "
    "that `podman images` lists (--env.agent.runtime.image; a local one is localhost/NAME:TAG)",
    r"executable file not found|no such file or directory: OCI runtime attempted": "the image holds no `sleep`, as "
    "which a container waits for its commands: use one with a shell",
    "setting rlimit": "podman may not raise its limits here: set lower ones in containers.conf, such as [containers] "
    'default_ulimits=["nofile=1024:1024","nproc=4096:4096"]',
    "(?i:cgroup)": 'on cgroup v1 podman wants runc: install it and set [engine] runtime="runc" in containers.conf',
    "": "try the same by hand: podman run --rm {image} true",
}
"""By what podman says: the first pattern that is found."""
_PASSING = re.compile(
    r"address already in use|database is locked|resource temporarily unavailable|resource busy", re.IGNORECASE
)


def is_passing(stderr: str) -> bool:
    """Whether the same call may work a moment later: several starts met on the way."""
    return _PASSING.search(stderr) is not None


def describe(image: str, exit_code: int, stderr: str) -> str:
    """The message of the error: what failed, why, and what to change."""
    advice = next(advice for pattern, advice in _ADVICE.items() if re.search(pattern, stderr)).format(image=image)
    said = stderr.strip()[-800:]
    return f"podman run of image {image!r} failed (exit code {exit_code}): {said}; {advice}"
