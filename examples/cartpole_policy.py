"""
Balance a cart and a pole
=========================

A policy balances a pole on a cart without observing velocities. Some frames are lost: an action is
held until the next frame, which has the elapsed time. Recurrent PPO in one file, as in CleanRL.
"""

import sys

import matplotlib.pyplot as plt
import torch
from torch.distributions import Categorical

import tauflow

ENVS, STEPS, UPDATES, EPOCHS, LOST = 32, 32, 180, 4, 0.3
torch.manual_seed(0)


# %%
# The cart-pole of Barto, Sutton & Anderson 1983 with the constants of Gymnasium; frames last 20 ms.
def step(state, action):
    """Hold actions until a frame comes; return states, frames passed, and which poles fell."""
    passed, frames = 0, 1 + torch.distributions.Geometric(1 - LOST).sample(action.shape)
    for frame in range(int(frames.max())):
        position, speed, angle, rate = state.T
        push = (20 * action - 10 + 0.05 * rate**2 * angle.sin()) / 1.1
        turn = (9.8 * angle.sin() - angle.cos() * push) / (2 / 3 - 0.05 * angle.cos() ** 2 / 1.1)
        slopes = torch.stack([speed, push - 0.05 * turn * angle.cos() / 1.1, rate, turn], dim=1)
        going = (frame < frames) & (position.abs() < 2.4) & (angle.abs() < 0.2095)
        state, passed = state + 0.02 * slopes * going[:, None], passed + going
    return state, passed, (state[:, 0].abs() >= 2.4) | (state[:, 2].abs() >= 0.2095)


# %%
# A CfC reads position, angle and last action; the head gives two logits and a value.
policy = tauflow.SequenceModel(tauflow.CfC(3, 32, backbone_units=32), 3)
optimizer, lifetimes, curve = torch.optim.Adam(policy.parameters(), eps=1e-5), [], []
state, age, dt = 0.1 * torch.rand(ENVS, 4) - 0.05, torch.zeros(ENVS), torch.zeros(ENVS)
h, action, start = policy.initial_state(ENVS), dt + 0.5, dt == 0

# %%
# Rollouts that continue from the last state, returns, and updates with clipped ratios (PPO).
for update in range(UPDATES):
    rollout, initial = [], h
    for _ in range(STEPS + 1):  # the last one is for its value
        x = torch.stack([state[:, 0], 10 * state[:, 2], 2 * action - 1], dim=1)
        with torch.no_grad():
            out, h = policy.step(x, h, dt, episode_start=start)
        choice = Categorical(logits=out[:, :2])
        drawn = choice.sample()
        state, passed, fallen = step(state, drawn.float())
        age, done = age + passed, fallen | (age + passed >= 500)
        rollout.append((x, dt, start, drawn, choice.log_prob(drawn), out[:, 2], passed, done))
        lifetimes += age[done].tolist()
        start, state = done, state.where(~done[:, None], 0.1 * torch.rand(ENVS, 4) - 0.05)
        age, dt, action = (v.float().where(~done, 0.0) for v in (age, passed, drawn))
    columns = (torch.stack(v, dim=1) for v in zip(*rollout, strict=True))
    x, dts, starts, actions, before, value, passed, done = columns
    returns = [value[:, -1]]  # with rewards and discounts for each frame
    for k in reversed(range(STEPS)):
        ahead = 0.1 * value[:, k + 1] + 0.9 * returns[0]
        returns.insert(0, 0.1 * passed[:, k] + ~done[:, k] * 0.99 ** passed[:, k] * ahead)
    target = torch.stack(returns[:-1], dim=1)
    gain = torch.nn.functional.layer_norm(target - value[:, :-1], target.shape)
    optimizer.param_groups[0]["lr"] = 3e-3 * (1 - update / UPDATES)
    for rows in [r for _ in range(EPOCHS) for r in torch.randperm(ENVS).chunk(4)]:
        first = rows, slice(STEPS)
        out, _ = policy(x[first], initial[rows], dt=dts[first], episode_start=starts[first])
        after = Categorical(logits=out[..., :2]).log_prob(actions[first])
        ratio = (after - before[first]).exp()
        clipped = torch.min(ratio * gain[rows], ratio.clamp(0.8, 1.2) * gain[rows])
        optimizer.zero_grad()
        (0.5 * (out[..., 2] - target[rows]).square() - clipped).mean().backward()
        optimizer.step()
    curve.append(0.02 * sum(lifetimes[-100:]) / max(1, len(lifetimes[-100:])))
print(f"balanced for {curve[-1]:.1f} s on average; before training for {curve[0]:.1f} s")
plt.axes(xlabel="update", ylabel="seconds balanced, at most 10").plot(curve)
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "cartpole_policy.png")
