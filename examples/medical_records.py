"""
Mortality in intensive care
===========================

The records cover two days: 37 quantities, measured at irregular times, most of them rarely or
never. The task is to predict death in hospital. A GRU-D gets the measured values, their times, and
a mask. The records are those of the PhysioNet Challenge 2012 if they are available (``tauflow data
get physionet2012``), otherwise simulated. Needs only tauflow.
"""

import sys

import matplotlib.pyplot as plt
import torch

import tauflow
from tauflow.data import is_available, load_task

EPOCHS, PATIENTS = 5, 1000
generator = torch.manual_seed(0)


def made_up(size):
    """Return records of 6 quantities over 48 hours; of those who die, two drift apart."""
    dt = torch.rand(size, 40, generator=generator) * 2.4
    hours = dt.cumsum(1)[..., None]
    died = (torch.rand(size, generator=generator) < 0.2).long()
    drift = torch.tensor([1.0, -1.0, 0, 0, 0, 0]) * died[:, None, None] * hours / 48
    x = drift + torch.randn(size, 1, 6, generator=generator) * 0.5
    x = x + torch.randn(size, 40, 6, generator=generator)
    seen = torch.rand(size, 40, 6, generator=generator) < torch.linspace(0.6, 0.1, 6)
    return tauflow.SequenceBatch(x * seen, died, dt, observed=seen)


# %%
# ``observed`` (B, T, I) says what was measured; missing values are 0 in x and are not used.
if is_available("physionet2012"):
    task = load_task(
        "physionet2012", inputs="values", statistics="train", statics=False, download=False
    )
    everybody, test = task.train, task.test
else:
    everybody, test = made_up(PATIENTS + 200), made_up(400)
train, valid = everybody[:PATIENTS], everybody[PATIENTS : PATIENTS + 200]
print(f"{len(train)} training patients, of whom {train.y.float().mean():.0%} died")

# %%
# Deaths are rare, so the weights are selected by the area under the ROC curve rather than by
# accuracy. The unit of time is the hour.
rnn = tauflow.GRUD(train.x.shape[2], 32, return_sequences=False)
model = tauflow.SequenceModel(rnn, 2)
recipe = tauflow.Recipe(lr=5e-3, epochs=EPOCHS, batch_size=32, clip="norm", clip_norm=1.0)
tauflow.train(model, train=train, valid=valid, metric="auroc", recipe=recipe)
area = tauflow.training.evaluate(model, test, metric="auroc")
print(f"area under the ROC curve on the test split: {area:.3f} (0.5 is chance)")

# %%
# One record as the network gets it, and the ROC curve.
with torch.no_grad():
    risk = model(test.x, dt=test.dt, mask=test.mask, observed=test.observed)[0].softmax(-1)[:, 1]
order = risk.argsort(descending=True)
hit = (test.y[order] == 1).float().cumsum(0) / (test.y == 1).sum()
alarm = (test.y[order] == 0).float().cumsum(0) / (test.y == 0).sum()
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 3.8), layout="constrained", width_ratios=[2, 1]
)
patient = int(order[0])
step, quantity = test.observed[patient].nonzero(as_tuple=True)
hours = test.dt[patient].cumsum(0)
left.scatter(hours[step], quantity, s=6, c="C0")
left.set(xlabel="hours since admission", ylabel="quantity", title="what was measured, and when")
right.plot(alarm, hit)
right.plot([0, 1], [0, 1], "--", color="0.6", linewidth=1)
right.set(xlabel="false alarms", ylabel="deaths foreseen", title=f"ROC curve, {area:.2f}")
right.set_aspect("equal")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "medical_records.png")
