"""Files of profilers become records of what ran."""
