"""
A trained LTC on a microcontroller
==================================

A liquid network of sixteen neurons learns to foretell a pendulum; one step of it leaves as C99 that
allocates nothing and needs only ``math.h``. If there is a C compiler, the program is compiled and
run on a recording, and says what Python says. Needs the extra ``c``.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import tauflow
from tauflow.data import load_task
from tauflow.export import IOSchema, to_c

EPOCHS, SEQUENCES = 25, 512
torch.manual_seed(0)

# %%
# Train it: what a sensor sees at irregular times in, what it will see at the next sample out.
data = load_task("pendulum", sizes=(SEQUENCES, 128, 128))
rnn = tauflow.LTC(data.card.input_size, 16)
model = tauflow.SequenceModel(rnn, data.card.target_size)
recipe = tauflow.Recipe(lr=3e-2, epochs=EPOCHS, batch_size=16, schedule="cosine")
result = tauflow.train(model, train=data, recipe=recipe)
print(f"{result.parameters} parameters, test error {result.test:.4f}; that nothing changes: 0.177")

# %%
# Write it as C. It was compared with the model before a file was written.
folder = Path(tempfile.mkdtemp())
labels = IOSchema("s", ["sin", "cos", "speed", "torque", "ahead"], ["sin", "cos", "speed"])
written = to_c(model, folder / "pendulum", name="pendulum", schema=labels)
source = written.path.read_text()
print(f"{len(source.splitlines())} lines of C; header: pendulum/pendulum.h")

# %%
# What a board would do: samples come in one by one, as lines of CSV with the gap at the end.
recording = data.test[int(data.test.y[:, :, 0].var(1).argmax())]  # the widest swings
with torch.no_grad():
    python = model(recording.x, dt=recording.dt)[0][0].numpy()
samples = np.column_stack([recording.x[0], recording.dt[0]])
compiler = shutil.which("cc")
if compiler is None:
    print("no C compiler here: compile the folder where there is one")
    device = np.full_like(python, np.nan)
else:
    sources = [str(written.path), str(written.path.with_name("main.c"))]
    program = str(folder / "run")
    subprocess.run([compiler, "-std=c99", "-Os", *sources, "-lm", "-o", program], check=True)
    lines = "\n".join(",".join(f"{value:.9g}" for value in sample) for sample in samples)
    done = subprocess.run([program], input=lines, text=True, capture_output=True, check=True)
    device = np.array([line.split(",") for line in done.stdout.splitlines()], dtype=float)
    size = Path(program).stat().st_size
    print(
        f"program of {size // 1024} KiB; differs from Python by {np.abs(device - python).max():.0e}"
    )

# %%
# The same numbers, on the recording.
figure, axes = plt.subplots(3, sharex=True, figsize=(7, 5), layout="constrained")
seconds = np.cumsum(samples[:, 4])
for ax, name, column in zip(axes, data.card.targets, range(3), strict=True):
    ax.plot(seconds, recording.y[0, :, column], "k--", linewidth=1, label="pendulum")
    ax.plot(seconds, python[:, column], linewidth=4, alpha=0.4, label="Python")
    ax.plot(seconds, device[:, column], ".", color="C1", label="C")
    ax.set_ylabel(name)
axes[0].legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
axes[-1].set_xlabel("seconds")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "microcontroller.png")
