"""Running one trial: its process, its metrics, its result, and Tune's view of it."""
