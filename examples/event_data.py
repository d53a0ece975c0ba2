"""
Events instead of samples
=========================

An event sensor reports only changes: their direction, and when they occur. In this example an event
occurs when a wave crosses a level, and a network classifies the shape of the wave. Triangles and
sines differ in the times between events, so a network without these times has little information.
Needs only tauflow.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import tauflow

EPOCHS, WAVES = 12, 2000
FORMS, LEVEL = ("sine", "triangle", "saw", "square"), 0.25
rng = np.random.default_rng(0)
torch.manual_seed(0)


# %%
# The sensor: one event for each level that the wave crosses, +1 upwards and -1 downwards.
def wave(form, seconds):
    """Draw a wave of a form, with a random frequency, height and phase."""
    cycles = rng.uniform(0.5, 1.5) * seconds + rng.random()
    turn = cycles % 1
    shape = (np.sin(2 * np.pi * cycles), 1 - 4 * abs(turn - 0.5), 2 * turn - 1, np.sign(turn - 0.5))
    return rng.uniform(0.7, 1.3) * shape[form]


def events(heights, seconds):
    """Return signs (E, 1) and times (E,) of the crossings of levels."""
    crossed = np.diff(np.floor(heights / LEVEL)).astype(int)
    when = np.repeat(seconds[1:], abs(crossed))
    return np.repeat(np.sign(crossed), abs(crossed))[:, None], when


seconds = np.linspace(0, 3, 1500)
forms = rng.integers(len(FORMS), size=WAVES)
streams = [events(wave(form, seconds), seconds) for form in forms]

# %%
# Streams differ in length: they are padded, and a mask marks the events. Time steps are in units of
# 50 ms, about their mean.
x = pad_sequence([torch.tensor(signs, dtype=torch.float32) for signs, _ in streams], True)
dt = pad_sequence([torch.tensor(np.diff(when, prepend=0) / 0.05) for _, when in streams], True)
lengths = torch.tensor([len(when) for _, when in streams])
mask = torch.arange(x.shape[1]) < lengths[:, None]
y = torch.from_numpy(forms)
with_times = tauflow.SequenceBatch(x, y, dt.float(), mask)
without = tauflow.SequenceBatch(x, y, mask=mask)  # every time step is 1

# %%
# The same network with and without the times.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for name, data in (("without times", without), ("with times", with_times)):
    model = tauflow.SequenceModel(tauflow.CfC(1, 32, return_sequences=False), len(FORMS))
    recipe = tauflow.Recipe(lr=3e-3, epochs=EPOCHS, schedule="cosine", clip="norm", clip_norm=1.0)
    parts = {"train": data[:-400], "valid": data[-400:-200], "test": data[-200:]}
    result = tauflow.train(model, **parts, recipe=recipe)
    print(f"{name}: {result.test:.0%} of the test waves are classified correctly")
    scores = [row["test"] for row in result.history]
    right.plot(range(1, EPOCHS + 1), scores, ".-", label=name)
right.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1.02))
right.legend(loc="lower right")
for form in range(len(FORMS)):
    heights = wave(form, seconds)
    signs, when = events(heights, seconds)
    left.plot(seconds, heights - 3 * form, color="0.6")
    for sign, colour in ((1, "C0"), (-1, "C3")):
        chosen = when[signs[:, 0] == sign]
        left.vlines(chosen, -3 * form - 1.6, -3 * form - 1.35, color=colour, linewidth=1)
left.set(yticks=[-3 * form for form in range(4)], yticklabels=FORMS, xlabel="seconds")
left.set_title("waves, and their events: up (blue), down (red)")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "event_data.png")
