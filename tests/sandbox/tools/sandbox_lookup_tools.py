"""A tool server that says where it runs; imported on the host, and as a program where it is placed."""

import os

import verifiers.v1 as vf


class LookupToolset(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def where(self) -> str:
        """Say where this server runs."""
        return f"server as uid {os.getuid()} in {os.getcwd()}"


if __name__ == "__main__":
    LookupToolset.run()
