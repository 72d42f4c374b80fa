"""Old names of `trunkfirst.distributed.pools`, kept until every import is changed."""

from ..distributed.pools import Lost, on_cluster, on_processes, without_main_module

__all__ = ["Lost", "on_cluster", "on_processes", "without_main_module"]
