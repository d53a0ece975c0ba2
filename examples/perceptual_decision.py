"""
A perceptual decision
=====================

A cognitive task in the format of neurogym: fixation, noise on two channels, a delay, and a decision
on which was stronger. Train and compare networks, and silence neurons. Needs only tauflow.
"""

import sys

import matplotlib.pyplot as plt
import torch

import tauflow
from tauflow import analysis

EPOCHS, TRIALS, NEURONS, REPEATS = 25, 1000, 24, 100
FIXATION, STIMULUS, GO, END = 3, 12, 20, 24  # time steps of 50 ms; GO is the end of the delay
COHERENCES = torch.tensor([-0.5, -0.25, -0.12, -0.05, 0.05, 0.12, 0.25, 0.5])


# %%
# Inputs are a fixation cue and two channels; the target is 0 (fixate), at the end choice 1 or 2.
def make_trials(coherence, seed):
    """Return one trial for each coherence, the signed difference of the channels."""
    generator = torch.Generator().manual_seed(seed)
    x = 0.1 * torch.randn(len(coherence), END, 3, generator=generator)
    x[:, :GO, 0] += 1
    stimulus = torch.stack([1 - coherence, 1 + coherence], dim=-1)[:, None] / 2
    noise = 0.3 * torch.randn(len(coherence), STIMULUS, 2, generator=generator)
    x[:, FIXATION : FIXATION + STIMULUS, 1:] += stimulus + noise
    y = torch.zeros(len(coherence), END, dtype=torch.long)
    y[:, GO:] = 1 + (coherence > 0).long()[:, None]
    return tauflow.SequenceBatch(x, y)


# %%
# Three networks are trained on different trials, and one is not trained.
recipe = tauflow.Recipe(lr=1e-2, epochs=EPOCHS, batch_size=32, schedule="cosine", select="last")
models = {}
for seed, cell in enumerate(("ct-rnn", "ct-rnn", "gru", "ct-rnn")):
    torch.manual_seed(seed)
    model = tauflow.SequenceModel(tauflow.build(cell, 3, NEURONS), 3)
    if seed < 3:
        trials = make_trials(COHERENCES[torch.randint(8, (TRIALS,))], seed)
        tauflow.train(model, train=trials, recipe=recipe)
    models[f"{cell} {seed}" if seed < 3 else "untrained"] = model.eval()

# %%
# All get the same trials: geometry (CKA, Procrustes) and dynamics (DSA), relative to the first one.
test = make_trials(COHERENCES.repeat_interleave(REPEATS), seed=9)
states = {name: analysis.visited_states(model, test.x) for name, model in models.items()}
first, *others = states
for name in others:
    pair = states[first], states[name]
    cka, distance = analysis.linear_cka(*pair), analysis.procrustes_distance(*pair)
    angle = analysis.dynamical_similarity(*pair, rank=6, starts=5).angle
    print(f"{name}: CKA {cka:.2f}, Procrustes distance {distance:.2f}, DSA {angle:.2f} rad")
print(f"{first} uses {analysis.participation_ratio(states[first]):.1f} dimensions")

# %%
# How often each network chooses 2, and the first one without the neurons most tuned to the choice.
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
late = states[first][:, GO - 1].view(8, REPEATS, NEURONS).mean(1)  # for each coherence
tuned = (late[4:].mean(0) - late[:4].mean(0)).abs().topk(4).indices.tolist()
del models["untrained"]
models["lesioned"] = analysis.lesion(models[first], tuned)
for name, model in models.items():
    with torch.no_grad():
        choice = model(test.x)[0][:, -1, 1:].argmax(-1).float()
    style = "k--" if name == "lesioned" else "o-"
    left.plot(COHERENCES, choice.view(8, REPEATS).mean(1), style, label=name)
left.set(xlabel="coherence", ylabel="share of choice 2")
left.legend(frameon=False)
view = analysis.principal_components(states[first]).projection(2)
means = view.project(states[first].view(8, REPEATS, -1, NEURONS).mean(1).double())
for mean, colour in zip(means, plt.cm.coolwarm(torch.linspace(0, 1, 8).numpy()), strict=True):
    right.plot(*mean.T, ".-", color=colour)
right.set(xlabel=view.names[0], ylabel=view.names[1])
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "perceptual_decision.png")
