"""Many devices, many processes: rows of arrays spread over a mesh, and processes that keep in step."""

from ._mesh import ROWS, current_mesh, gather_rows, home, replicate_beside, spread_rows, use_devices
from ._processes import (
    Membership,
    agree,
    allgather,
    check_in_step,
    fail,
    find_membership,
    first_alone,
    is_first,
    is_several,
    join_processes,
    leave_processes,
    share,
    waiting,
)

__all__ = [
    "ROWS",
    "Membership",
    "agree",
    "allgather",
    "check_in_step",
    "current_mesh",
    "fail",
    "find_membership",
    "first_alone",
    "gather_rows",
    "home",
    "is_first",
    "is_several",
    "join_processes",
    "leave_processes",
    "replicate_beside",
    "share",
    "spread_rows",
    "use_devices",
    "waiting",
]
