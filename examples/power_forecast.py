"""
Forecast the power of a household
=================================

A network forecasts the next day from a table of hourly values. The table is the power of a French
household if it is available (``tauflow data get power-hourly``), otherwise simulated. The trained
model is saved in one file, with columns, units and scales. Needs the extra ``tables``.
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
# One row per hour. Hour and day are known in advance; the network gets them as points on a circle.
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
# Windows of two days, each with the next day to forecast; the splits are consecutive in time.
past, future = table[:-24], table[-24:]
data = from_table(past, time="hour", target="kW", task="next-step", window=48, horizon=24, stride=6)
rnn = tauflow.CfC(data.card.input_size, 48, return_sequences=False)
model = tauflow.SequenceModel(rnn, data.card.target_size)
recipe = tauflow.Recipe(lr=3e-3, epochs=EPOCHS, batch_size=32, schedule="cosine", patience=4)
result = tauflow.train(model, train=data, recipe=recipe)
yesterday = data.test.x[:, -24:, data.schema.inputs.index("kW")]
naive = torch.nn.functional.mse_loss(yesterday, data.test.y)
print(f"test error {result.test:.3f}; the same as the day before: {naive:.3f}")

# %%
# Save, load, and forecast the day after the end of the table, in kW.
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
