"""From what a profiler saw to a workload: one iteration, its passes, kernels, work and gaps."""
