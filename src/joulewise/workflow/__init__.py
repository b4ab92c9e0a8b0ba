"""The composition root: the only place that wires stages to devices and files."""
