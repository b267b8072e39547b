"""Runs on the host as a normal user: what the sandbox does for root it does for everybody."""

import asyncio

from agent_sandbox.confined import LocalSandboxConfig, provision_confined


async def main() -> None:
    async with provision_confined(LocalSandboxConfig()) as box:
        await box.write("locked/x", b"1")
        uid = await box.run(["sh", "-c", "id -u; chmod 0 /app/locked; mkdir -p /app/a/b; chmod 0 /app/a"], {})
        gone = await box.run(["sh", "-c", "cat /etc/shadow; echo x > /usr/x"], {})
        print(uid.stdout.strip(), gone.exit_code != 0, await box.alive())


if __name__ == "__main__":
    asyncio.run(main())
