"""Hardware behind the ports of the domain."""
