"""Build and run C of one step on Cortex-M cores under QEMU, and count bytes and instructions."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")
_FLAGS = ["-mthumb", "-std=c99", "-ffunction-sections", "-fdata-sections"]
_HARD = "-mfloat-abi=hard"


@dataclass(frozen=True)
class Core:
    """A core, and the machine of QEMU that has it; an instruction takes 1 ns under -icount."""

    machine: str
    flags: tuple[str, ...]
    memory: tuple[str, str, str, str]  # flash and its size, RAM and its size
    tick: float  # ns of SysTick


CORES = {
    "M0": Core("microbit", ("-mcpu=cortex-m0",), ("0x0", "256K", "0x20000000", "16K"), 62.5),
    "M3": Core("mps2-an385", ("-mcpu=cortex-m3",), ("0x0", "4M", "0x20000000", "4M"), 40),
    "M4F": Core(
        "mps2-an386",
        ("-mcpu=cortex-m4", _HARD, "-mfpu=fpv4-sp-d16"),
        ("0x0", "4M", "0x20000000", "4M"),
        40,
    ),
    "M33F": Core(
        "mps2-an505",
        ("-mcpu=cortex-m33", _HARD, "-mfpu=fpv5-sp-d16"),
        ("0x10000000", "4M", "0x38000000", "2M"),
        50,
    ),
}


@dataclass(frozen=True)
class Measurement:
    """What one step takes.

    Args:
        flash: bytes that linking it adds, with what it calls of libm and libgcc.
        stack: bytes below the caller's frame, at most.
        instructions: of one step, the mean of all samples.
        y: outputs as words, one list for each sample.
    """

    flash: int
    stack: int
    instructions: int
    y: list[list[int]]


def find_missing_tool() -> str | None:
    """Return the name of a program that is missing, or ``None``."""
    return next((tool for tool in TOOLS if shutil.which(tool) is None), None)


def measure(
    core: str, folder: Path, place: Path, main: str, *, name: str = "model", level: str = "-O2"
) -> Measurement:
    """Build ``NAME.c`` of a folder with a program, and run it.

    Args:
        core: one of :data:`CORES`.
        folder: of the code.
        place: an empty folder to build in.
        main: the program, which prints ``Y`` and the words of each sample's outputs, then ``T``,
            the ticks of all steps and the depth of the stack.
        name: of the code.
        level: of optimisation.
    """
    target = CORES[core]
    script = (HERE / "link.ld").read_text()
    for key, value in zip(("FLASH", "FLASH_SIZE", "RAM", "RAM_SIZE"), target.memory, strict=True):
        script = script.replace(f"@{key}@", value)
    (place / "link.ld").write_text(script)
    (place / "main.c").write_text(main)
    (place / "none.c").write_text(f"void {name}_start(void) {{}}\nvoid {name}_step(void) {{}}\n")
    gcc = ["arm-none-eabi-gcc", *target.flags, *_FLAGS]
    _run([*gcc, level, "-c", str(folder / f"{name}.c"), "-o", "model.o"], place)
    _run([*gcc, level, "-w", "-c", "none.c", "-o", "none.o"], place)
    includes = ["-I", str(folder), "-I", str(HERE)]
    for source in (place / "main.c", HERE / "start.c"):
        options = ["-std=gnu99", "-O1", "-w", *includes, "-c", str(source)]
        _run([*gcc, *options, "-o", f"{source.stem}.o"], place)
    for program in ("model", "none"):
        link = ["-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections", "-Wl,-T,link.ld"]
        objects = ["start.o", "main.o", f"{program}.o", "-lm", "-o", f"{program}.elf"]
        _run([*gcc, "-w", *link, *objects], place)
    qemu = ["qemu-system-arm", "-M", target.machine, "-nographic", "-monitor", "none", "-serial"]
    qemu += ["none", "-semihosting-config", "enable=on,target=native", "-icount", "shift=0"]
    text = _run([*qemu, "-kernel", "model.elf"], place)
    rows = [
        [int(v, 16) for v in re.findall(r"\w+", row)] for row in re.findall("^Y (.*)", text, re.M)
    ]
    if (total := re.search(r"^T (\w+) (\w+)", text, re.M)) is None:
        raise RuntimeError(f"{core}: {text[-300:]}")
    ticks, stack = (int(v, 16) for v in total.groups())
    flash = _size(place / "model.elf") - _size(place / "none.elf")
    return Measurement(flash, stack, round(ticks * target.tick / len(rows)), rows)


def _size(program: Path) -> int:
    text = _run(["arm-none-eabi-size", "-A", str(program)], program.parent)
    sections = re.findall(r"^(\.text|\.data)\s+(\d+)", text, re.M)
    return sum(int(size) for _, size in sections)


def _run(command: list[str], place: Path) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(done.stdout + done.stderr)[:2000]}")
    return done.stdout + done.stderr
