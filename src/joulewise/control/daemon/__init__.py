"""`joulewised`: sets clocks for processes that may not, as long as they hold a connection."""
