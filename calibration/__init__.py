"""How the virtual GPUs got their parameters; run by `make calibrate`, never shipped."""
