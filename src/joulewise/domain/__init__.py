"""Values, units, errors, caveats and ports that every layer speaks; imports nothing of ours."""
