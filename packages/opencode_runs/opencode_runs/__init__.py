"""What reads runs: how hard their tasks are, what a trainer would get from them, and one page that shows them.

The commands are `opencode-difficulty`, `opencode-trainable` and `opencode-report`, all over the reader in `traces`.
"""

__all__: list[str] = []
