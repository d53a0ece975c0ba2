"""Give memory back that kernels keep between calls."""

from . import cuda_graphs, workspace


def release_memory() -> None:
    """Give back the memory that kernels keep for their next call.

    On the CPU that is up to three times what a training step needs for its backward pass, and at
    most :data:`tauflow.kernels.workspace.KEPT_BYTES` more than what is in use; on a GPU the tensors
    of up to eight recorded loops. Worth a call when training is over and the process goes on.
    Tensors that are still in use, and so the backward passes to come, are not touched.
    """
    workspace.release()
    cuda_graphs.release()
