"""Programming problems: their tests, the forms that datasets keep them in, and what counts as the right result."""
