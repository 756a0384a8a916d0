"""Speed as ratios against a named rival in the same run. Never part of a test: a number here cannot make one flake."""
