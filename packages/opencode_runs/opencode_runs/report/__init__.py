"""One page that shows what the agents of runs did, why they scored, and what a trainer gets: `opencode-report`."""
