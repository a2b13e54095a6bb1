"""Run many cases: the folder of a sweep, its lock, the supervisor of its ranks."""
