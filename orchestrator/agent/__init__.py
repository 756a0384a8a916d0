"""The first process of every rank: supervisor of attempts, member of a gang, prober, metrics."""
