"""One page that shows what the agents of runs did, why they scored, and what a trainer gets: `opencode-report`.

It is one HTML file that fetches nothing. Its figures are those of `opencode-difficulty` and `opencode-trainable`.
"""
