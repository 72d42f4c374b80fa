"""Old names of `trunkfirst.distributed`, kept until every import is changed."""

from ..distributed.mesh import ROWS, current_mesh, gather_rows, use_devices
from ..distributed.mesh import replicate_like as replicate_beside
from ..distributed.mesh import shard_rows as spread_rows
from ..distributed.mesh import to_local as home
from ..distributed.processes import allgather, check_in_step, join_processes, leave_processes
from ..distributed.processes import assemble_rows as join_rows
from ..distributed.processes import broadcast_value as agree
from ..distributed.processes import collective_timeout as waiting
from ..distributed.processes import gather_in_order as in_turn
from ..distributed.processes import is_distributed as is_several
from ..distributed.processes import is_leader as is_first
from ..distributed.processes import leader_first as first_alone
from ..distributed.processes import process_shard as own_part
from ..distributed.processes import sum_over_processes as summed
from ..distributed.processes import unexpected_error_code as fail

__all__ = [
    "ROWS",
    "agree",
    "allgather",
    "check_in_step",
    "current_mesh",
    "fail",
    "first_alone",
    "gather_rows",
    "home",
    "in_turn",
    "is_first",
    "is_several",
    "join_processes",
    "join_rows",
    "leave_processes",
    "own_part",
    "replicate_beside",
    "spread_rows",
    "summed",
    "use_devices",
    "waiting",
]
