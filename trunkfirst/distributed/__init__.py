"""More than one device, process or machine.

`processes`: processes that run one program in lockstep. `mesh`: rows of arrays sharded over devices. `launch`:
start processes and restart them after a loss. `pools`: independent tasks in worker processes or on a Dask cluster.
Import from these modules; `pools` does not load JAX.
"""
