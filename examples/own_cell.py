"""
A custom cell
=============

A cell defines how the state evolves over one time step, in one method: ``step``. The library adds
loops, masks, layers, training and streams. In this cell, pairs of neurons rotate and decay at
learned rates; the solution is exact for time steps of any length. Needs only tauflow.
"""

import sys

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.data import load_task

EPOCHS, SEQUENCES = 50, 384
torch.manual_seed(0)


# %%
# ``step`` maps a sample x (B, I), a state h (B, N) and a time step dt (B, 1) to the next state.
class TurningCell(AbstractCell):
    """Pairs of neurons that turn and fade between samples, and jump with each sample."""

    compiled = True  # the step only computes, so it may run in compiled loops

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.rate = nn.Parameter(torch.linspace(-3, 1, hidden_size // 2))  # exp(rate) > 0
        self.frequency = nn.Parameter(torch.linspace(0, 3, hidden_size // 2))
        self.jump = nn.Linear(input_size + hidden_size, hidden_size)

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        """Return the state after ``dt`` and a jump."""
        a, b = h.chunk(2, dim=-1)
        fading = torch.exp(-self.rate.exp() * dt)
        cos, sin = fading * torch.cos(self.frequency * dt), fading * torch.sin(self.frequency * dt)
        h = torch.cat([cos * a - sin * b, sin * a + cos * b], dim=-1)
        return h + torch.tanh(self.jump(torch.cat([x, h], dim=-1)))


# %%
# Any cell makes a sequence module. This one learns to predict a pendulum at irregular times.
data = load_task("pendulum", sizes=(SEQUENCES, 64, 128), steps=32)
rnn = tauflow.RNN(TurningCell(data.card.input_size, 32))
model = tauflow.SequenceModel(rnn, data.card.target_size)
recipe = tauflow.Recipe(lr=1e-2, epochs=EPOCHS, batch_size=32, schedule="cosine")
result = tauflow.train(model, train=data, recipe=recipe)
print(f"test error {result.test:.4f}; persistence has 0.177")

# %%
# The response to one sample, and the predictions of the network.
cell = rnn.cell
with torch.no_grad():
    kick = cell.step(data.test.x[0, :1], torch.zeros(1, 32), torch.zeros(1, 1))
    later = torch.linspace(0, 10, 200)[:, None]
    a, b = kick.expand(200, -1).chunk(2, dim=-1)
    angle, fading = cell.frequency * later, torch.exp(-cell.rate.exp() * later)
    response = fading * (a * torch.cos(angle) - b * torch.sin(angle))
    forecast = model(data.test.x, dt=data.test.dt)[0]
slow = response[-100:].abs().amax(0).topk(4).indices
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.2), layout="constrained")
left.plot(later, response[:, slow])
left.set(xlabel="seconds after one sample", ylabel="state", title="four of the longest memories")
widest = int(data.test.y[:, :, 0].var(1).argmax())
seconds = data.test.x[widest, :, 4].cumsum(0)
right.plot(seconds, data.test.y[widest, :, 0], "k--", linewidth=1, label="sin θ at the next sample")
right.plot(seconds, forecast[widest, :, 0], "o", color="C1", markersize=4, label="foretold")
right.set(xlabel="seconds")
right.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "own_cell.png")
