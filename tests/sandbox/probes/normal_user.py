"""Runs on the host as a normal user: what the sandbox does for root it does for everybody."""

import asyncio
import os
import sys

from rollout_sandbox.confined import LocalSandboxConfig, provision_confined


async def main() -> None:
    async with provision_confined(LocalSandboxConfig()) as box:
        await box.write("locked/x", b"1")
        uid = await box.run(["sh", "-c", "id -u; chmod 0 /app/locked; mkdir -p /app/a/b; chmod 0 /app/a"], {})
        gone = await box.run(["sh", "-c", "cat /etc/shadow; echo x > /usr/x"], {})
        print(uid.stdout.strip(), gone.exit_code != 0, await box.alive())


if __name__ == "__main__":
    # The sandbox shows the system's Python, because this one's installation may be closed to other users.
    sys.prefix = sys.base_prefix = "/usr"
    sys.executable = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    asyncio.run(main())
