"""Virtual GPUs: physics, sensors and noise behind the ports of real ones."""
