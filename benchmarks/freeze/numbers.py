"""Outputs, final states and gradients of cells, sequence modules, whole models and training."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from .digests import digest, import_from_tests, key, options_key, write_part

SIZES = ((1, 1, 1, 1), (3, 7, 4, 5), (2, 33, 3, 17))
"""Sequences, steps, inputs and neurons."""
MIDDLE = SIZES[1]
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"num_layers": 2},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "return_sequences": False},
)


def list_values(_: Path) -> Iterator[tuple[str, str]]:
    """Yield all keys and digests."""
    import_from_tests("parity", "conformance")
    yield from _cells()
    yield from _modules()
    yield from _whole_models()
    yield from _trained()


def variants() -> Iterator[tuple[str, dict[str, Any], int | None]]:
    """Yield catalog names, options and, where the options depend on it, the number of inputs."""
    import variants as conformance
    from kernel_variants import VARIANTS
    from sequences_of_cells import EVERY

    from tauflow.cells.registry import MODELS

    named = {}
    for name, entry in MODELS.items():
        named.setdefault(entry.cell, name)
    every = [
        *((name, options, None) for name, options in EVERY),
        *((n, options, conformance.D) for n, options in conformance.VARIANTS.values()),
        *((named[kind], options, 3) for kind, of in VARIANTS.items() for options in of),
    ]
    seen = set()
    for name, options, inputs in every:
        text = key(name, options_key(options))
        if text not in seen:
            seen.add(text)
            yield name, dict(options), inputs if "x_mean" in options else None


def neurons(size: int, options: dict[str, Any]) -> Any:
    """Return the neurons or the wiring that options ask for, and take those options out."""
    from tauflow.wirings import AutoNCP, RandomSparse

    wiring = options.pop("wiring", None)
    if wiring is not None:
        return wiring(size)
    motors, sparsity = options.pop("motors", None), options.pop("sparsity", None)
    if motors is not None:
        return AutoNCP(size + 4, motors)
    return size if sparsity is None or size == 1 else RandomSparse(size, sparsity=sparsity)


def perturbed(module: Any) -> Any:
    """Return a module none of whose parameters are zeros or ones, which would hide mistakes."""
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter).abs())
    return module


def gradients(outputs: Any, leaves: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield digests of outputs, and of the gradients of a weighted sum of them."""
    import torch

    tensors = [out for out in outputs.values() if out.requires_grad]
    pulls = [torch.linspace(-1, 1, out.numel()).to(out).view_as(out) for out in tensors]
    grads = torch.autograd.grad(tensors, list(leaves.values()), pulls, allow_unused=True)
    for name, out in outputs.items():
        yield name, digest(out)
    for name, grad in zip(leaves, grads, strict=True):
        yield f"d {name}", "none" if grad is None else digest(grad)


def _cells() -> Iterator[tuple[str, str]]:
    import torch

    for name, options, inputs in variants():
        for size in SIZES:
            for masked in (False, True) if size == MIDDLE else (False,):
                for dtype in (torch.float32, torch.float64) if size == MIDDLE else (torch.float32,):
                    call = Case(name, options, size, inputs, masked).to(dtype)
                    head = (name, options_key(options))
                    kind = f"{str(dtype)[6:]} {size[:2]}x{size[3]}{' masked' * masked}"
                    for backend, run in _backends(call.made):
                        for tensor, value in call.values(run):
                            yield key("cell", *head, backend, kind, tensor), value


class Case:
    """A call, and its numbers on a backend."""

    def __init__(
        self, name: str, options: dict[str, Any], size: Any, inputs: int | None, masked: bool
    ) -> None:
        import torch

        import tauflow
        from tauflow.kernels import KernelCall

        B, T, D, N = size
        options, features = dict(options), inputs or D
        torch.manual_seed(0)
        hidden = neurons(N, options)
        cell = perturbed(tauflow.build(name, features, hidden, **options).cell)
        x, dt = torch.randn(B, T, features), torch.rand(B, T, 1) + 0.1
        h = 0.3 * torch.randn(B, cell.state_size)
        mask = torch.rand(B, T) < 0.7 if masked else None
        seen = torch.rand(x.shape) < 0.6 if masked and cell.uses_observed else None
        if mask is not None:
            x, dt = (value.masked_fill(~mask.unsqueeze(-1), 0.0) for value in (x, dt))
        self.made = KernelCall(cell, x, h, dt, mask, seen)

    def to(self, dtype: Any) -> "Case":
        """Convert the call, and record gradients of its inputs."""
        self.made.cell.to(dtype)
        parts = {n: getattr(self.made, n).to(dtype).requires_grad_() for n in ("x", "h", "dt")}
        self.made = replace(self.made, **parts)
        return self

    def values(self, run: Any) -> Iterator[tuple[str, str]]:
        """Yield digests of what a backend gives, with gradients and without."""
        import torch

        call = self.made
        leaves = {"x": call.x, "h": call.h, "dt": call.dt, **dict(call.cell.named_parameters())}
        y, last = run(call)
        yield from gradients({"y": y, "last": last}, leaves)
        with torch.no_grad():
            y, last = run(call)
        yield "y without gradients", digest(y)
        yield "last without gradients", digest(last)


def _backends(call: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and functions of the reference loop and of every kernel that takes a call."""
    from tauflow.kernels import get_kernels
    from tauflow.kernels.trace.operator import run_traced
    from tauflow.sequence import reference_loop

    yield "reference", reference_loop
    numbers: dict[str, Any] = {}
    for spec in get_kernels(call.cell):
        if spec.device not in (None, "cpu") or spec.unsupported_reason(call) is not None:
            continue
        recorded = spec.function is run_traced
        name = "traced" if recorded else spec.backend
        yield f"{name} {next(numbers.setdefault(name, count(1)))}", spec.run


def _module_values(module: Any, x: Any, dt: Any, **options: Any) -> Iterator[tuple[str, str]]:
    import torch

    torch.manual_seed(1)
    x, dt = x.requires_grad_(), dt.requires_grad_()
    y, state = module(x, dt=dt, **options)
    states = {} if not torch.is_tensor(state) else {"state": state}
    if isinstance(state, tuple | list):
        states = {f"state {n}": part for n, part in enumerate(state) if torch.is_tensor(part)}
    yield from gradients({"y": y, **states}, {"x": x, "dt": dt, **dict(module.named_parameters())})


def _modules() -> Iterator[tuple[str, str]]:
    import torch

    import tauflow
    from tauflow.cells.registry import MODELS

    B, T, D, N = MIDDLE
    for name in MODELS:
        for options in LAYOUTS:
            torch.manual_seed(0)
            module = perturbed(tauflow.build(name, D, N, **options))
            x, dt = torch.randn(B, T, D), torch.rand(B, T) + 0.1
            mask = torch.arange(T) < torch.tensor([T, 3, 5]).unsqueeze(1)
            for kind, mask_options in {"": {}, "masked": {"mask": mask}}.items():
                for tensor, value in _module_values(module, x.clone(), dt.clone(), **mask_options):
                    yield key("module", name, options_key(options), kind, tensor), value


def _whole_models() -> Iterator[tuple[str, str]]:
    import torch
    import whole_models

    for name in whole_models.NAMES:
        module = whole_models.model(name)
        x, dt = whole_models.sequences(name)
        for tensor, value in _module_values(module, x, dt):
            yield key("whole model", name, tensor), value
        with torch.no_grad():
            y, _ = module.float()(x.detach().float(), dt=dt.detach().float())
        yield key("whole model", name, "y in float32"), digest(y)


def _trained() -> Iterator[tuple[str, str]]:
    """Three steps of training: the history, and every parameter after them."""
    import json

    import torch

    import tauflow
    from tauflow.cells.registry import MODELS
    from tauflow.models import SequenceModel

    random = torch.Generator().manual_seed(2)
    x = torch.randn(12, 6, 3, generator=random)
    dt = torch.rand(12, 6, generator=random) + 0.1
    data = tauflow.SequenceBatch(x, x[..., :1].cumsum(1), dt=dt)
    recipe = tauflow.Recipe(
        lr=0.01, epochs=1, batch_size=3, select="last", clip="norm", clip_norm=1.0
    )
    for name in MODELS:
        torch.manual_seed(0)
        model = SequenceModel(tauflow.build(name, 3, 5), 1)
        result = tauflow.train(
            model, train=data[:9], valid=data[9:], recipe=recipe, seed=0, progress=False
        )
        rows = [{k: v for k, v in row.items() if "seconds" not in k} for row in result.history]
        yield key("trained", name, "history"), json.dumps(rows, sort_keys=True)
        for parameter, tensor in model.state_dict().items():
            yield key("trained", name, parameter), digest(tensor)


if __name__ == "__main__":
    write_part("numbers", list_values)
