"""
Steering with nineteen neurons
==============================

A convolutional head reads the image of a road, and a neural circuit policy steers: a wiring of 12
inter, 6 command and 1 motor neuron, small enough to plot every synapse. The road is rendered by the
library. A saliency map shows where the head looks. Needs only tauflow.
"""

import sys

import matplotlib.pyplot as plt
import torch

import tauflow
from tauflow.analysis import plot_wiring, visual_backprop
from tauflow.data import load_task
from tauflow.models import ConvolutionalSequenceModel

EPOCHS, DRIVES = 15, 128
torch.manual_seed(0)

# %%
# Drives of 16 frames (B, 16, 3, 36, 64), and the curvature that a good driver steers at each frame.
data = load_task("lane-keeping", sizes=(DRIVES, 16, 16), image_size=(36, 64))

# %%
# The output is the motor neuron of the wiring; the head is small, to save time.
wiring = tauflow.NCP(
    12, 6, 1, sensory_fanout=4, inter_fanout=4, recurrent_command_synapses=4, motor_fanin=6
)
model = ConvolutionalSequenceModel(
    tauflow.WiredCfC(16, wiring),
    data.card.image_size,
    layers=[(8, 5, 2), (16, 3, 2), (16, 3, 2)],  # channels, kernel, stride
    dense=[16],
)
recipe = tauflow.Recipe(lr=3e-3, epochs=EPOCHS, batch_size=8, schedule="cosine")
result = tauflow.train(model, train=data, recipe=recipe)
variance = data.test.y.var()
print(f"test error {result.test:.4f}; variance of the steering {variance:.4f}")

# %%
# The circuit, its steering on a test drive, and where the head looks.
road = data.test[int(data.test.y.var(1).argmax())]  # the most winding road
with torch.no_grad():
    steered = model(road.x, dt=road.dt)[0]
looked = visual_backprop(model, road.x)
figure = plt.figure(figsize=(10, 6), layout="constrained")
grid = figure.add_gridspec(3, 2, width_ratios=[1.4, 1])
plot_wiring(wiring, 16, figure.add_subplot(grid[:, 0]))
frame = road.x[0, 8].permute(1, 2, 0).numpy()
image, mask, curve = (figure.add_subplot(grid[row, 1]) for row in range(3))
image.imshow((frame - frame.min()) / (frame.max() - frame.min()))
image.set(title="what the camera sees", xticks=[], yticks=[])
mask.imshow(looked.masks[0, 8].numpy(), cmap="inferno")
mask.set(title="where the head looks", xticks=[], yticks=[])
seconds = 0.1 * torch.arange(16)
curve.plot(seconds, road.y[0], "k--", linewidth=1, label="driver")
curve.plot(seconds, steered[0], label="network")
curve.set(xlabel="seconds", ylabel="curvature\n(1/10 m)")
curve.legend()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "ncp_steering.png")
