"""A recorded trace replayed on a made cluster, by several configurations: `bench_replay.py` runs it, `world` makes it, `measure` judges it."""
