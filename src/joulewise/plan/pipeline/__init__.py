"""Choosing an option for every operation of a pipeline: bounded by a linear program."""
