"""
A glucose sensor, one hour ahead
================================

A sensor reports glucose every five minutes, with gaps. The next hour is forecast with intervals.
The table is ``CGM.csv`` of Bokeh's sample data if ``bokeh_sampledata`` is installed, otherwise
simulated. Needs the extras ``sklearn`` and ``tables``.
"""

import sys
from importlib.resources import files
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from tauflow.estimators import SequenceForecaster

EPOCHS, ROWS = 6, 40_000
rng = np.random.default_rng(0)

# %%
# One row per report, in mg/dl. A new sequence begins after half an hour without reports.
if find_spec("bokeh_sampledata"):
    path = files("bokeh_sampledata") / "_data" / "CGM.csv"
    table = pd.read_csv(str(path), usecols=["datetime", "glucose"], parse_dates=["datetime"])
    table = table.drop_duplicates("datetime").sort_values("datetime")[-ROWS:]
else:
    meal = 18 * np.arange(60) / 60 * np.exp(-np.arange(60) / 12)  # a rise, and its end
    meals = np.convolve((rng.random(ROWS) < 1 / 60) * rng.gamma(4, 16, ROWS), meal)[:ROWS]
    drift = 4 * pd.Series(rng.normal(0, 12, ROWS)).ewm(halflife=30).mean()
    table = pd.DataFrame({"datetime": pd.date_range("2010-03-24", periods=ROWS, freq="5min")})
    table["glucose"] = 100 + meals + drift + rng.normal(0, 2, ROWS)
    table = table[rng.random(ROWS) < 0.97]
table["sensor"] = (table["datetime"].diff() > pd.Timedelta("30min")).cumsum()
table, times = table.reset_index(drop=True), table["datetime"].reset_index(drop=True)
print(f"{len(table)} values in {table['sensor'].nunique()} pieces")

# %%
# The last fifth is the test split; the fifth before selects the epoch and calibrates the intervals.
cuts = [len(table) * 6 // 10, len(table) * 8 // 10]
train, valid, test = table[: cuts[0]], table[cuts[0] : cuts[1]], table[cuts[1] :]
options = {"targets": ["glucose"], "max_lead_time": "1h", "window": 36, "origin_step": 12}
options |= {"model": "gru", "epochs": EPOCHS, "lr": 0.01, "batch_size": 64, "random_state": 0}
roles = {"id": "sensor", "time": "datetime"}
forecaster = SequenceForecaster(**options, intervals="quantile")
forecaster.fit(train, validation={"X": valid, **roles}, **roles)
print("RMSE, mg/dl:", {name: f"{row[0]:.1f}" for name, row in forecaster.compare(test).items()})

# %%
# Intervals are valid where new data are like those of the calibration. Glucose changes from week to
# week, so the intervals are recalibrated before each week, on the previous four weeks.
levels, shares, counts = (0.8, 0.95), [], []
once = forecaster.measure_coverage(test, levels)
for start in pd.date_range(times[cuts[1]], times.iloc[-1], freq="7D"):
    before = table[(times >= start - pd.Timedelta("28D")) & (times < start)]
    week = table[(times >= start - pd.Timedelta("3h")) & (times < start + pd.Timedelta("7D"))]
    coverage = forecaster.recalibrate(before).measure_coverage(week, levels, since=start)
    shares.append([coverage[level][0] for level in levels])
    counts.append(len(week))
print("intervals of 80 and 95 %, calibrated once:", [f"{share[0]:.1%}" for share in once.values()])
print("each week:", [f"{share:.1%}" for share in np.average(shares, axis=0, weights=counts)])

# %%
# Half a day, with a forecast every two hours and intervals of 80 and 95 %.
last = test[test["sensor"] == test.groupby("sensor").size().idxmax()].set_index("datetime")
middle = last.index[len(last) // 2]
figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
ax.plot(last["glucose"][middle : middle + pd.Timedelta("12h")], "k.", markersize=3)
ahead = pd.to_timedelta(np.arange(5, 61, 5), "min")
for origin in pd.date_range(middle + pd.Timedelta("1h"), periods=5, freq="2h"):
    known = last[middle - pd.Timedelta("3h") : origin].reset_index()
    when = known["datetime"].iloc[-1] + ahead
    for level in levels:
        forecast, low, high = forecaster.predict(known, at=ahead, interval=level)
        ax.fill_between(when, low[0, :, 0], high[0, :, 0], color="C0", alpha=0.2, linewidth=0)
    ax.plot(when, forecast[0, :, 0], "C0")
ax.set(ylabel="glucose, mg/dl")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "glucose_forecast.png")
