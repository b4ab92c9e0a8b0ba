"""How the GPUs of a job are spread over nodes."""

from __future__ import annotations

from joulewise.domain.errors import InputError


def check_node_gpus(node_gpu_count: int | None, gpu_count: int) -> None:
    """Refuse a node that the job's GPUs do not fill evenly; `None` where nobody said.

    Raises InputError naming `node_gpus`.
    """
    if node_gpu_count is None:
        return
    if not 1 <= node_gpu_count <= gpu_count:
        raise InputError(
            f"{node_gpu_count} of the job's GPUs cannot share a node: it has {gpu_count}",
            field="node_gpus",
            hint="Count the GPUs of the job that are in one node; dp x tp x pp are all of them.",
        )
    if gpu_count % node_gpu_count:
        raise InputError(
            f"nodes of {node_gpu_count} cannot hold {gpu_count} GPUs evenly",
            field="node_gpus",
            hint="Use a divisor of dp x tp x pp.",
        )
