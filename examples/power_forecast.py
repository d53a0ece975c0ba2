"""
Forecast the power of a household
=================================

A table of hours in, the next day out. The table is the hourly power of a French household if it is
here (``tauflow data get power-hourly`` brings it), else one made up. What is trained is kept in one
file, which knows columns, units and scales. Needs the extra ``tables``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import tauflow
from tauflow.data import fetch_dataset, from_table, is_available

EPOCHS, HOURS = 15, 12_000
torch.manual_seed(0)

# %%
# A row for each hour. Hour and day are known ahead; a network gets them as a place on a circle.
if is_available("power-hourly"):
    file = next(fetch_dataset("power-hourly").glob("household_power_consumption_hourly.csv*"))
    table = pd.read_csv(file, parse_dates=["datetime"])[-HOURS:]
    table = pd.DataFrame({"hour": table["datetime"], "kW": table["Global_active_power"] / 60})
else:
    hour = pd.date_range("2010-01-01", periods=HOURS, freq="h")
    noise = np.random.default_rng(0).gamma(2, 0.15, HOURS)
    evening = np.exp(-(((hour.hour - 19) / 2.5) ** 2)) + 0.6 * (hour.hour == 7)
    power = 0.3 + evening * (1 + (hour.day_of_week > 4)) + noise
    table = pd.DataFrame({"hour": hour, "kW": power})
when = table["hour"].dt
for name, turns in (("day", when.hour / 24), ("week", when.day_of_week / 7)):
    table[f"sin {name}"] = np.sin(2 * np.pi * turns)
    table[f"cos {name}"] = np.cos(2 * np.pi * turns)

# %%
# Windows of two days, each with the day after it to forecast; training comes first, the test last.
past, future = table[:-24], table[-24:]
data = from_table(past, time="hour", target="kW", task="next-step", window=48, horizon=24, stride=6)
rnn = tauflow.CfC(data.card.input_size, 48, return_sequences=False)
model = tauflow.SequenceModel(rnn, data.card.target_size)
recipe = tauflow.Recipe(lr=3e-3, epochs=EPOCHS, batch_size=32, schedule="cosine", patience=4)
result = tauflow.train(model, train=data, recipe=recipe)
yesterday = data.test.x[:, -24:, data.schema.inputs.index("kW")]
naive = torch.nn.functional.mse_loss(yesterday, data.test.y)
print(f"test error {result.test:.3f}; that a day is like the day before: {naive:.3f}")

# %%
# Kept, brought back and asked for the day after the table's end, in kW.
tauflow.Predictor.from_data(model, data).save("power_forecast.safetensors")
answer = tauflow.load_predictor("power_forecast.safetensors").predict(past).iloc[-1]
forecast = [answer[f"kW +{ahead}"] for ahead in range(1, 25)]
figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
ax.plot(past["hour"][-72:], past["kW"][-72:], color="0.6", label="measured")
ax.plot(future["hour"], future["kW"], "k--", linewidth=1, label="what came then")
ax.plot(future["hour"], forecast, "C1", label="forecast")
ax.set(ylabel="kW")
ax.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "power_forecast.png")
