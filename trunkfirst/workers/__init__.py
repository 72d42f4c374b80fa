"""Who does the work: processes on this machine, or a Dask cluster. Results come as they are done."""

from ._cluster import on_cluster
from ._processes import Lost, on_processes, without_main_module

__all__ = ["Lost", "on_cluster", "on_processes", "without_main_module"]
