"""`python -m joulewise`."""

from __future__ import annotations

from joulewise.cli.app import main

if __name__ == "__main__":
    main()
