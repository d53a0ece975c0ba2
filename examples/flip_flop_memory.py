"""
A memory, and its fixed points
==============================

A network that is to remember the last pulse on each of two channels, +1 or -1, has to hold four
states still without input: it needs four stable fixed points. Train one, find them, and look at the
flow between them, as Kim et al. 2022 do for gated neural ODEs. Needs nothing but tauflow.
"""

import sys

import matplotlib.pyplot as plt
import torch

import tauflow
from tauflow.analysis import (
    as_flow,
    find_fixed_points,
    flow_field,
    output_projection,
    plot_flow_field,
    visited_states,
)
from tauflow.data import load_task

EPOCHS, STARTS, RESOLUTION = 30, 300, 25
torch.manual_seed(0)

# %%
# The task is made by the library: silence with short pulses, and the memory to be held as target.
data = load_task("flip-flop", bits=2, steps=50, pulses=6)
rnn = tauflow.GNODE(data.card.input_size, 2, units=32)
model = tauflow.SequenceModel(rnn, data.card.target_size)
recipe = tauflow.Recipe(lr=1e-2, epochs=EPOCHS, batch_size=10, schedule="cosine")
result = tauflow.train(model, train=data, recipe=recipe)
print(f"test error {result.test:.4f}; an answer of 0 makes 1")

# %%
# The flow without input, the states that trials visit, and where the flow stands still.
flow = as_flow(rnn)
states = visited_states(rnn, data.test.x)
found = find_fixed_points(flow, states, starts=STARTS, seed=0)
for point, kind in zip(found.points.float(), found.stability, strict=True):
    first, second = model.head(point).tolist()
    print(f"{kind} fixed point where the outputs are {first:+.1f} and {second:+.1f}")

# %%
# The two neurons, seen in the plane of the two outputs.
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
changes = data.test.y.diff(dim=1).ne(0).sum((1, 2))
trial = data.test[int(changes.argmax())]
answer = model(trial.x)[0][0].detach()
for channel, low in ((0, 0), (1, -3)):
    left.fill_between(range(50), low + trial.x[0, :, channel], low, color="0.75")
    left.plot(low + trial.y[0, :, channel], "k--", linewidth=1)
    left.plot(low + answer[:, channel], label=f"output {channel + 1}")
left.set(xlabel="bins of 10 ms", yticks=[], ylabel="pulses, memory (dashed), answer")
left.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
view = output_projection(model.head, rnn.state_size)
box = ((-1.6, 1.6), (-1.6, 1.6))
field = flow_field(
    flow, view, box=box, trajectories=states[:5], fixed_points=found, resolution=RESOLUTION
)
plot_flow_field(field, right)
right.set(xlabel="output 1", ylabel="output 2")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "flip_flop_memory.png")
