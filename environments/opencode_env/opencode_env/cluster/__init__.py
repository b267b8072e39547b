"""Rollouts on a cluster: whole episodes are handed to workers on nodes, each of which holds the same environment.

`driver` packs episodes into workers, `worker` is what runs on a node, `ray_engine` starts workers by Ray. Another
engine is another module with the methods of `driver.Engine`.
"""
