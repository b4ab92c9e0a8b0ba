"""Policies: from what is known of a fine-tuning job to a clock."""
