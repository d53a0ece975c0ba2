"""
Convert a model from ncps
=========================

A network was trained with ``ncps``. It is converted with its weights and gives the same outputs on
compiled kernels. It can then be trained at irregular times and run sample by sample.
If ``ncps`` is not installed, ``tauflow.compat.ncps`` with the same constructors is used instead.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import tauflow

try:
    from ncps.torch import LTC
    from ncps.wirings import AutoNCP
except ImportError:  # changing the import is all that code written for ncps needs
    from tauflow.compat.ncps.torch import LTC
    from tauflow.compat.ncps.wirings import AutoNCP

EPOCHS = 100
rng = np.random.default_rng(0)
torch.manual_seed(0)

# %%
# The model in ncps: the example of its documentation, which predicts one wave from two others.
t = torch.linspace(0, 3 * np.pi, 48)
x = torch.stack([t.sin(), t.cos()], dim=-1)[None]  # (1, 48, 2)
y = (2 * t).sin()[None, :, None]  # (1, 48, 1)
theirs = LTC(2, AutoNCP(16, 1), batch_first=True)
optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02)
for _ in range(EPOCHS):
    loss = torch.nn.functional.mse_loss(theirs(x)[0], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
# The converted model has the same wiring and the same outputs.
ours = tauflow.from_ncps(theirs)
with torch.no_grad():
    before, after = theirs(x)[0], ours(x)[0]
print(f"loss {loss.item():.4f} in ncps; largest difference {(before - after).abs().max():.0e}")

# %%
# Training continues on many copies of the wave, each sampled at different times. ``dt`` is the time
# since the previous sample, in the unit that the network was trained with: one of 47 steps.
gaps = torch.from_numpy(rng.gamma(2.0, 0.5, (64, 48))).float()
u = gaps.cumsum(1) * t[1]
waves = torch.stack([u.sin(), u.cos()], dim=-1)
data = tauflow.SequenceBatch(waves, (2 * u).sin()[..., None], gaps)
untrained = tauflow.training.evaluate(ours, data[-16:], metric="mse")
recipe = tauflow.Recipe(lr=0.01, epochs=EPOCHS // 5, batch_size=16)
result = tauflow.train(ours, train=data[:-16], valid=data[-16:], recipe=recipe)
print(f"at irregular times: {untrained:.4f} as converted, {result.valid:.4f} after training")
tauflow.save(ours, "from_ncps.safetensors")  # without pickle; tauflow.load brings it back

# %%
# A stream takes one sample at a time and gives the same outputs as the whole sequence.
stream = ours.stream()
answers = [stream.step(sample, gap) for sample, gap in zip(waves[-1], gaps[-1], strict=True)]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
left.plot(t, y[0], "k--", linewidth=1, label="wanted")
left.plot(t, before[0], linewidth=5, alpha=0.4, label="ncps")
left.plot(t, after[0], label="tauflow")
right.plot(u[-1], data.y[-1], "k--", linewidth=1)
right.plot(u[-1], torch.stack(answers), ".", color="C1", label="tauflow, sample by sample")
left.set(xlabel="time, every step alike", ylabel="wave")
right.set(xlabel="time, irregular")
for ax in (left, right):
    ax.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "from_ncps.png")
