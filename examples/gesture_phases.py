"""
Classify the phases of a gesture
================================

People tell a story. From the velocities of their hands, a network classifies every frame: rest,
preparation, stroke, hold or retraction. The recordings are those of the UCI repository if they are
available (``tauflow data get gesture``), otherwise simulated. Needs only tauflow.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import tauflow
from tauflow.data import is_available, load_task

EPOCHS, HIDDEN = 25, 32
PHASES = ("rest", "preparation", "stroke", "hold", "retraction")
torch.manual_seed(0)


def made_up(size, seed):
    """Return gestures of 32 frames; each phase has its speeds in 32 directions."""
    rng = np.random.default_rng(seed)
    frames = np.arange(32) + rng.integers(40, size=(size, 1))
    y = torch.from_numpy(frames // rng.integers(5, 9, (size, 1)) % len(PHASES))
    speeds = torch.randn(len(PHASES), 32, generator=torch.Generator().manual_seed(1))
    noise = torch.from_numpy(rng.normal(scale=3.0, size=(size, 32, 32))).float()
    return tauflow.SequenceBatch(speeds[y] + noise, y)


# %%
# Windows of 32 frames, split at random as published. They overlap by half, so that test frames are
# also in training windows; ``split="by_recording"`` has no overlap and is harder.
if is_available("gesture"):
    data = load_task("gesture", download=False)
    train, valid, test = data.train, data.valid, data.test
else:
    train, valid, test = (made_up(size, seed=size) for size in (455, 60, 90))

# %%
# The whole window is known before the prediction, so the network can be bidirectional.
rnn = tauflow.CfC(32, HIDDEN, bidirectional=True)
model = tauflow.SequenceModel(rnn, len(PHASES))
recipe = tauflow.Recipe(lr=2e-3, epochs=EPOCHS, batch_size=16, weight_decay=1e-2, optimizer="adamw")
result = tauflow.train(model, train=train, valid=valid, test=test, recipe=recipe)
most = test.y.flatten().bincount().max() / test.y.numel()
print(f"accuracy on test frames {result.test:.0%}; always the most frequent phase: {most:.0%}")

# %%
# Eight windows with the true and the predicted phases, and the confusion matrix.
with torch.no_grad():
    named = model(test.x)[0].argmax(-1)
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=[2, 1]
)
stretch = torch.stack([test.y[:8].flatten(), named[:8].flatten()]).numpy()
colours = plt.get_cmap("viridis", len(PHASES))
shown = left.imshow(stretch, aspect="auto", cmap=colours, vmin=-0.5, vmax=4.5, interpolation="none")
left.set(yticks=[0, 1], yticklabels=["by hand", "network"], xlabel="frames")
bar = figure.colorbar(shown, ax=left, ticks=range(5), location="top")
bar.ax.set_xticklabels(PHASES)
counts = torch.zeros(5, 5)
counts.index_put_((test.y.flatten(), named.flatten()), torch.ones(1), accumulate=True)
share = (counts / counts.sum(1, keepdim=True).clamp(min=1)).numpy()
right.imshow(share, cmap="Blues", vmin=0, vmax=1)
for row in range(5):
    for column in range(5):
        colour = "white" if share[row, column] > 0.5 else "black"
        right.text(column, row, f"{share[row, column]:.0%}", ha="center", va="center", color=colour)
right.set(xticks=range(5), yticks=range(5), yticklabels=PHASES, xlabel="named", ylabel="true phase")
right.set_xticklabels(PHASES, rotation=30, ha="right")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "gesture_phases.png")
