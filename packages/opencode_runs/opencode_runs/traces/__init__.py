"""The one reader of runs: where they keep their traces, and their episodes line by line, checked at the edge."""
