"""How much memory a process of its own took at most."""

from __future__ import annotations

# `getrusage` goes on from the peak of the process that started this one; this mark does not.
PRINT_PEAK_KIB = (
    "print(next(line.split()[1] for line in open('/proc/self/status') "
    "if line.startswith('VmHWM')))\n"
)
