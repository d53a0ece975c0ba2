"""
A trained LTC on a microcontroller
==================================

A liquid network of sixteen neurons learns to predict a pendulum. One step of it is exported as C99
code that allocates no memory and needs only ``math.h``. If there is a C compiler, the program is
compiled, run on a recording and compared with Python.
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
# Train it: the inputs are samples at irregular times; the target is the next sample.
data = load_task("pendulum", sizes=(SEQUENCES, 128, 128))
rnn = tauflow.LTC(data.card.input_size, 16)
model = tauflow.SequenceModel(rnn, data.card.target_size)
recipe = tauflow.Recipe(lr=3e-2, epochs=EPOCHS, batch_size=16, schedule="cosine")
result = tauflow.train(model, train=data, recipe=recipe)
print(f"{result.parameters} parameters, test error {result.test:.4f}; persistence: 0.177")

# %%
# Export it to C. The code is compared with the model before a file is written.
folder = Path(tempfile.mkdtemp())
labels = IOSchema("s", ["sin", "cos", "speed", "torque", "ahead"], ["sin", "cos", "speed"])
written = to_c(model, folder / "pendulum", name="pendulum", schema=labels)
source = written.path.read_text()
print(f"{len(source.splitlines())} lines of C; header: pendulum/pendulum.h")

# %%
# As on a board, samples come in one by one: lines of CSV with the time step at the end.
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
# The outputs of C and Python on the recording.
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
