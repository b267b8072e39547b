"""What reads runs: how hard their tasks are, what a trainer would get from them, and one page that shows them."""

__all__: list[str] = []
