"""What drives a sweep besides Ray Tune's defaults."""
