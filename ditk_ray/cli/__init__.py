"""The command line: parse, build typed options, call one function, print."""
