"""Fine-tuning on embedded boards: jobs, policies that pick a clock, and what they save."""
