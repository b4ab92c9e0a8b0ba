"""What runs in one iteration: built-in workloads."""
