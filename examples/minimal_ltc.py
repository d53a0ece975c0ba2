"""
An LTC in plain PyTorch
=======================

A liquid time-constant network (LTC) without this library. ``tauflow.LTC`` computes the same outputs
and gradients, and adds masks, wirings, other solvers, streams and compiled kernels.
"""

import sys

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

EPOCHS, SEQUENCES, STEPS, HIDDEN = 200, 64, 40, 12
torch.manual_seed(0)


# %%
# Neurons have a capacitance C and a leak g_l, V_l; synapses w, mu, sigma, reversal potential E.
def uniform(low: float, high: float, *shape: int) -> nn.Parameter:
    """Draw a parameter."""
    return nn.Parameter(torch.empty(shape).uniform_(low, high))


def synapses(z: Tensor, w: Tensor, mu: Tensor, sigma: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """Return the current and the conductance of all synapses from z, (B, N) each."""
    g = softplus(w) * torch.sigmoid(sigma * (z[..., None] - mu))  # (B, sources, N)
    return (g * E).sum(-2), g.sum(-2)


class MinimalLTC(nn.Module):
    """LTC of N neurons with a synapse from every input and every neuron to every neuron."""

    def __init__(self, D: int, N: int) -> None:
        super().__init__()
        self.w, self.w_x = uniform(-1, 0, N, N), uniform(-1, 0, D, N)
        self.mu, self.mu_x = uniform(0.3, 0.8, N, N), uniform(0.3, 0.8, D, N)
        self.sigma, self.sigma_x = uniform(3, 8, N, N), uniform(3, 8, D, N)
        self.E, self.E_x = uniform(-1, 1, N, N), uniform(-1, 1, D, N)
        self.g_l, self.V_l, self.C = uniform(-1, 1, N), uniform(-0.2, 0.2, N), uniform(0, 0, N)
        self.a_in, self.b_in = uniform(1, 1, D), uniform(0, 0, D)
        self.a_out, self.b_out = uniform(1, 1, N), uniform(0, 0, N)

    def step(self, x: Tensor, v: Tensor, dt: Tensor) -> Tensor:
        """Advance v by dt in six fused Euler steps, while the input x is held constant."""
        u, delta, g_l, C = x * self.a_in + self.b_in, dt / 6, softplus(self.g_l), softplus(self.C)
        i_x, g_x = synapses(u, self.w_x, self.mu_x, self.sigma_x, self.E_x)
        for _ in range(6):
            i, g = synapses(v, self.w, self.mu, self.sigma, self.E)
            v = (C * v + delta * (g_l * self.V_l + i_x + i)) / (C + delta * (g_l + g_x + g + 1e-8))
        return v

    def forward(self, x: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (B, T, N) and last state for inputs (B, T, I), time steps (B, T, 1)."""
        v = x.new_zeros(len(x), len(self.C))
        states = [v := self.step(x[:, k], v, dt[:, k]) for k in range(x.shape[1])]
        return torch.stack(states, 1) * self.a_out + self.b_out, v


# %%
# The task: sines sampled at irregular times; the target is the value at the next sample.
dt = torch.rand(SEQUENCES, STEPS, 1) + 0.1
wave = torch.sin(dt.cumsum(1) + 6.3 * torch.rand(SEQUENCES, 1, 1))
x, target = torch.cat([wave, dt.roll(-1, 1)], -1)[:, :-1], wave[:, 1:]
rnn, head, losses = MinimalLTC(2, HIDDEN), nn.Linear(HIDDEN, 1), []
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=0.02)
for _ in range(EPOCHS):
    optimizer.zero_grad()
    loss = (head(rnn(x, dt[:, :-1])[0]) - target).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"mean squared error {losses[-1]:.4f}; the sines have variance {target.var():.2f}")

# %%
# The training curve.
plt.semilogy(losses)
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "minimal_ltc.png")
