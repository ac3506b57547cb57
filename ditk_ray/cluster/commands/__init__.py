"""Commands on the nodes of a Ray cluster, each with cores, GPUs and memory of its own."""
