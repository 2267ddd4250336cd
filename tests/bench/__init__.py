"""`make bench`: the speed of each part of the platform, compared with two other engines on the same jobs."""
