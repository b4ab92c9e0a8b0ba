"""Setting clocks under a lease, and giving them back whatever happens."""
