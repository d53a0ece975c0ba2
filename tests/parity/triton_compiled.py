"""Compile Triton kernels for GPUs that need not be there, and write what they take, as JSON.

Run as ``python triton_compiled.py <compute capability>``, in a process without TRITON_INTERPRET.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tauflow.kernels import triton_ltc_loops, triton_synapses
from tauflow.kernels.triton_ltc_plan import RowPlan, StepPlan

TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
INTEGERS = {"B", "T", "N", "K", "M", "S", "chunk"}


def cases():
    """Yield a name, a kernel, its launch arguments and the tensors stored in bfloat16."""
    for rows, neurons in ((1, 1), (1, 32), (4, 32), (1, 64), (4, 128), (2, 256), (1, 1024)):
        size = f"B {rows} N {neurons}"
        flags = {"MASKED": True, "KEEP": True, "SLOPES": True}
        plan = StepPlan.of(rows, neurons, backward=False).launch()
        yield f"ltc_forward {size}", triton_ltc_loops.ltc_forward, {**plan, **flags}, ("h", "out")
        plan = StepPlan.of(rows, neurons, backward=True).launch()
        del flags["KEEP"]
        yield f"ltc_backward {size}", triton_ltc_loops.ltc_backward, {**plan, **flags}, ("g_out",)
    for sources, targets in ((1, 1), (3, 17), (64, 64)):
        size = f"S {sources} N {targets}"
        plan = RowPlan.of(sources, targets).launch()
        yield f"conduct {size}", triton_synapses.conduct, plan, ()
        yield f"pull_sources {size}", triton_synapses.pull_sources, plan, ()
        plan = RowPlan.of(sources, targets, sums=True).launch()
        yield f"pull_weights {size}", triton_synapses.pull_weights, {**plan, "AFTER": True}, ()


def compiled(kernel, launch, halves, capability):
    """Return registers of a thread, bytes that it spills, and bytes of shared memory."""
    options = {name: launch[name] for name in ("num_warps", "enable_fp_fusion")}
    constants = {name: value for name, value in launch.items() if name not in options}
    kinds = {**dict.fromkeys(INTEGERS, "i32"), "mask": "*u8", **dict.fromkeys(halves, "*bf16")}
    signature = {
        name: "constexpr" if name in constants else kinds.get(name, "*fp32")
        for name in kernel.arg_names
    }
    source = ASTSource(kernel, signature=signature, constexprs=constants)
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary.asm["cubin"])
        command = [str(TOOL), "--dump-resource-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", text).groups())
    return {"registers": registers, "spills": stack, "shared": binary.metadata.shared}


if __name__ == "__main__":
    capability = int(sys.argv[1])
    found = {name: compiled(*rest, capability) for name, *rest in cases()}
    sys.stdout.write(json.dumps(found))
