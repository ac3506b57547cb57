"""Ray clusters: being connected to one, what its nodes have, sending work to it, making one."""
