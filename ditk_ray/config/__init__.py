"""DI-engine configs, search spaces and `JobCfg`: all that a user writes."""
