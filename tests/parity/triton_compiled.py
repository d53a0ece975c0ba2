"""Compile Triton kernels for GPUs that need not be there, and write what they take, as JSON.

Run as ``python triton_compiled.py <compute capability> [few]``, in a process without
TRITON_INTERPRET.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tauflow
from tauflow.kernels import KernelCall
from tauflow.kernels.cfc import triton_backward, triton_forward
from tauflow.kernels.generated import compile as source
from tauflow.kernels.generated import kernel as generated
from tauflow.kernels.gpu.plan import CorePlan, launch_options
from tauflow.kernels.ltc import triton_loop as ltc_loop
from tauflow.kernels.ltc.triton_plan import RowPlan, StepPlan

TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
INTEGERS = {"B", "T", "N", "K", "M", "S", "U", "W", "chunk"}
CLOSED_FORM = {"SIGN": -1.0, "TIME_BIAS": True, "PHI": 0, "SCALE": 1.0, "RATE": 1.0, "MASKED": True}
OUTER = {"OUTER": 0, "OUTER_SCALE": 1.7159, "OUTER_RATE": 0.666}
SINGLE = (
    "rate",
    "amplitude",
    "dt",
    "cells",
    "state",
    "memory",
    "grad_state",
    "grad_memory",
    "grad_dt",
    "grad_pure",
)
"""Arguments of the closed forms that are float32 whatever is multiplied."""


def cases(capability):
    """Yield a name, a kernel, its launch arguments, its tensors in bfloat16, and a bound."""
    yield from cfc_cases(capability)
    if capability >= 90:  # the others take neither matrix units nor much of the shared memory
        yield from ltc_cases()
        yield from generated_cases()


def ltc_cases():
    for rows, neurons in ((4, 32), (4, 128), (1, 1024)):
        size = f"B {rows} N {neurons}"
        flags = {"MASKED": True, "SLOPES": True}
        plan = StepPlan.choose(rows, neurons, backward=False).launch_arguments()
        forward, backward = ltc_loop.ltc_forward, ltc_loop.ltc_backward
        yield f"ltc_forward {size}", forward, {**plan, **flags, "KEEP": True}, ("h", "out"), None
        plan = StepPlan.choose(rows, neurons, backward=True).launch_arguments()
        yield f"ltc_backward {size}", backward, {**plan, **flags}, ("grad_out",), None
    for sources, targets in ((1, 1), (3, 17), (64, 64)):
        size = f"S {sources} N {targets}"
        plan = RowPlan.choose(sources, targets).launch_arguments()
        yield f"conduct {size}", ltc_loop.synaptic_currents, plan, (), None
        yield f"sources_backward {size}", ltc_loop.sources_backward, plan, (), None
        plan = RowPlan.choose(sources, targets, sums=True).launch_arguments()
        yield (
            f"weights_backward {size}",
            ltc_loop.weights_backward,
            {**plan, "AFTER": True},
            (),
            None,
        )


def cfc_cases(capability):
    sizes = [
        (False, 32, 1, 0, 0),
        (False, 16, 3, 1, 0),
        (False, 16, 0, 2, 0),
        (False, 32, 1, 0, 1),
        (True, 64, 1, 0, 2),
        (False, 64, 1, 0, 0),
        (True, 128, 1, 0, 0),
    ]
    for half, size, layers, mode, mixed in sizes if capability >= 90 else sizes[:1]:
        heads, memory = 1 if mode == 2 else 4, {"memory": mixed > 0, "reads_state": mixed == 1}
        plan = CorePlan.choose(layers, heads, size, size, **memory)
        precision = "ieee" if half else "tf32x3"
        bound = plan.shared_bytes(torch.bfloat16 if half else torch.float32, precision)
        flags = {**plan.launch_arguments(), **CLOSED_FORM, **OUTER, "MODE": mode, "LAYERS": layers}
        flags |= {"MIXED": mixed, "SLOPES": False, "PRECISION": precision}
        for name, kernel, flag in (
            ("cfc_forward", triton_forward.cfc_forward, "KEEP"),
            ("cfc_backward", triton_backward.cfc_backward, "GAPS"),
        ):
            constants = {**flags, flag: True}
            pointers = [n for n in kernel.arg_names if n not in constants | dict.fromkeys(SINGLE)]
            halves = pointers if half else ()
            name = f"{name} N {size} L {layers} mode {mode} mixed {mixed} {precision}"
            yield name, kernel, constants, halves, bound


def generated_cases():
    for name in ("gru-d", "lem", "ct-rnn", "cfc"):
        cell = tauflow.build(name, 17, 64).cell
        x = torch.zeros(2, 1, 17)
        h = x.new_zeros(2, cell.state_size, requires_grad=True)
        recording, _ = generated._prepare(KernelCall(cell, x, h, x.new_ones(2, 1, 1)))
        for way in ("forward", "backward"):
            step = getattr(recording.lowered, way)
            plan = generated.choose_launch(step)
            kernels = source.compile_source(step.source(resident=plan.resident))
            for part, kernel in kernels.items():
                rows, warps = (1, plan.warps) if part == "loop" else (16, 8)
                flags = {"MASKED": True, "KEEP": True, "PRECISION": "tf32x3", "ROWS": rows}
                yield f"{name} {way} {part}", kernel, {**flags, **launch_options(warps)}, (), None


def compiled(kernel, launch, halves, bound, capability):
    """Return registers of a thread, bytes that it spills, and bytes of shared memory."""
    chosen = {name: launch[name] for name in ("num_warps", "enable_fp_fusion")}
    constants = {name: value for name, value in launch.items() if name not in chosen}
    unknown = {*halves, *constants} - {*kernel.arg_names}
    assert not unknown, f"{kernel.__name__} has no {unknown}"
    kinds = dict.fromkeys(halves, "*bf16") | dict.fromkeys(INTEGERS, "i32") | {"mask": "*u8"}
    signature = {
        name: "constexpr" if name in constants else kinds.get(name, "*fp32")
        for name in kernel.arg_names
    }
    source = ASTSource(kernel, signature=signature, constexprs=constants)
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=chosen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary.asm["cubin"])
        command = [str(TOOL), "--dump-resource-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", text).groups())
    resources = {"registers": registers, "spills": stack, "shared": binary.metadata.shared}
    return resources if bound is None else {**resources, "planned": bound}


if __name__ == "__main__":
    capability = int(sys.argv[1])
    chosen, kernels = [], Counter()
    for case in cases(capability):
        kernels[case[1]] += 1
        if "few" not in sys.argv or kernels[case[1]] == 1:  # the first size of every kernel
            chosen.append(case)
    resources = {name: compiled(*rest, capability) for name, *rest in chosen}
    sys.stdout.write(json.dumps(resources))
