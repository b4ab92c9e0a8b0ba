"""Foreign measurements become sweeps."""

from joulewise.store.importers.csv_tables import import_csv
from joulewise.store.importers.kernel_tuner import import_kernel_tuner
from joulewise.store.importers.perseus import import_perseus

__all__ = ["import_csv", "import_kernel_tuner", "import_perseus"]
