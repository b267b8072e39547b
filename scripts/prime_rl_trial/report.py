"""What a trial found, line by line."""


class Report:
    """Findings, printed as they come."""

    def __init__(self) -> None:
        self._failed: list[str] = []

    def holds(self, what: str, true: bool, said: object = "") -> None:
        """One finding that has to be true, and the figures behind it."""
        print(f"{'ok  ' if true else 'FAIL'} {what}: {said}", flush=True)
        if not true:
            self._failed.append(what)

    def close(self) -> int:
        """The exit code, told."""
        print(f"prime-rl trial: {len(self._failed)} failures{''.join(f'; {what}' for what in self._failed)}")
        return int(bool(self._failed))
