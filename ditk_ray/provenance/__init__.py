"""Which code a sweep runs, on what machine; and keeping secrets out of what is kept."""
