"""
Balance a pendulum with a stream
================================

A network learns from demonstrations to hold a pendulum upright, and then does it one sample at a
time. It measures only the angle, with noise, from packets that arrive 20 to 200 ms apart. It infers
the velocity from the angles and the times between them. Needs only tauflow.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import tauflow

EPOCHS, DRIVES, STEPS = 30, 256, 64
rng = np.random.default_rng(0)
torch.manual_seed(0)


# %%
# An inverted pendulum that falls over within a second, and an expert that knows angle and velocity.
# Noise is added to the pushes of the expert, so that the demonstrations contain falls.
def fall(angle, speed, push, gap):
    """Return angle and speed after a time step in seconds, holding the push."""
    for _ in range(10):
        speed = speed + gap / 10 * (6 * np.sin(angle) - 0.2 * speed + push)
        angle = angle + gap / 10 * speed
    return angle, speed


gaps = np.clip(rng.exponential(0.06, (STEPS, DRIVES)), 0.02, 0.2)
angle, speed = rng.uniform(-0.5, 0.5, (2, DRIVES))
x, y = np.empty((2, STEPS, DRIVES))
for step, gap in enumerate(gaps):
    x[step] = angle + 0.01 * rng.standard_normal(DRIVES)
    y[step] = np.clip(-14 * angle - 5 * speed, -6, 6)
    angle, speed = fall(angle, speed, y[step] + 3 * rng.standard_normal(DRIVES), gap)

# %%
# Training is one call. The time step is the time since the previous sample, in units of its mean,
# because time constants are initialised around 1.
UNIT = 0.06
dt = np.vstack([np.full(DRIVES, UNIT), gaps[:-1]]) / UNIT
x, y, dt = (torch.tensor(part.T, dtype=torch.float32) for part in (x, y, dt))
data = tauflow.SequenceBatch(x[..., None], y[..., None], dt)  # (B, T, 1), (B, T, 1), (B, T)
policy = tauflow.SequenceModel(tauflow.CfC(1, 32), output_size=1)
recipe = tauflow.Recipe(lr=5e-3, epochs=EPOCHS, batch_size=32, schedule="cosine")
result = tauflow.train(policy, train=data[:-32], valid=data[-32:], recipe=recipe)
print(f"mean squared error of the pushes {result.valid:.2f}; their variance {y.var():.2f}")

# %%
# In the loop, a stream maps a sample and its time step to a push, in about ten microseconds.
stream = policy.eval().stream()
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 4), layout="constrained")
gaps = np.clip(rng.exponential(0.06, 100), 0.02, 0.2)
for name, share in (("left alone", 0), ("held by the network", 1)):
    angle, speed, push, seen = 0.3, 0.0, 0.0, []
    for gap in gaps:
        angle, speed = fall(angle, speed, push, gap)
        sample = np.array([angle + 0.01 * rng.standard_normal()], np.float32)
        push = share * np.clip(stream.step(sample, gap / UNIT)[0], -6, 6)
        seen.append((np.degrees(angle), push))
    degrees, pushes = np.transpose(seen)
    above.plot(gaps.cumsum(), degrees, ".-", label=name)
    below.step(gaps.cumsum(), pushes, where="post")
    stream.reset()
above.set(ylim=(-30, 90), ylabel="angle (degrees)")
above.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
below.set(xlabel="seconds, a dot for each packet", ylabel="push")
print(f"held within {np.abs(degrees[50:]).max():.1f} degrees after {gaps[:50].sum():.1f} s")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "pendulum_control.png")
