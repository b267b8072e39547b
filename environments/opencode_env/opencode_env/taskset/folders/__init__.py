"""Task directories in the layout of Harbor and Terminal-Bench 2: `task.toml`, `instruction.md`, `tests/`, …"""
