"""The benchmarks of `make bench`: the speed of the platform, compared with two other engines on the same jobs."""
