"""The cells once more in NumPy, neuron by neuron, from the equations of the papers."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from torch import nn

Array = NDArray[np.float64]


def arrays(module: nn.Module) -> dict[str, Array]:
    """Return every parameter and buffer of a module in double precision."""
    return {name: value.double().numpy() for name, value in module.state_dict().items()}


def softplus(z: Array) -> Array:
    return np.log1p(np.exp(z))


def lecun_tanh(z: Array) -> Array:
    return 1.7159 * np.tanh(0.666 * z)


def ltc_parameters(cell: nn.Module) -> dict[str, Array]:
    """Return an LTC cell's parameters with the constrained ones as effective values."""
    p = arrays(cell)
    if cell.constraint != "clip":
        p.update({name: softplus(p[name]) for name in ("w", "w_x", "g_l", "C")})
    return p


def conductance_and_drive(
    p: dict[str, Array], polarity: Array, polarity_x: Array, x: Array, v: Array
) -> tuple[Array, Array]:
    """Return G_i and J_i of one sample, summed synapse by synapse."""
    u = x * p.get("a_in", 1.0) + p.get("b_in", 0.0)
    G, J = np.zeros_like(v), np.zeros_like(v)
    for i in range(len(v)):
        for z, w, s, mu, E, present in (
            (u, p["w_x"], p["sigma_x"], p["mu_x"], p["E_x"], polarity_x),
            (v, p["w"], p["sigma"], p["mu"], p["E"], polarity),
        ):
            for j in range(len(z)):
                if present[j, i] != 0:
                    g = w[j, i] * expit(s[j, i] * (z[j] - mu[j, i]))
                    G[i] += g
                    J[i] += g * E[j, i]
    return G, J


def explicit_step(field: Callable[[Array], Array], h: Array, d: float, solver: str) -> Array:
    """Take one step of a textbook explicit method."""
    k1 = field(h)
    if solver == "euler":
        return h + d * k1
    if solver == "midpoint":
        return h + d * field(h + d * k1 / 2)
    if solver == "heun":
        return h + d * (k1 + field(h + d * k1)) / 2
    k2 = field(h + d * k1 / 2)
    k3 = field(h + d * k2 / 2)
    k4 = field(h + d * k3)
    return h + d * (k1 + 2 * k2 + 2 * k3 + k4) / 6


def ltc_field(
    p: dict[str, Array], polarity: Array, polarity_x: Array, x: Array
) -> Callable[[Array], Array]:
    """Return dv/dt of one sample."""

    def field(v: Array) -> Array:
        G, J = conductance_and_drive(p, polarity, polarity_x, x, v)
        return (p["g_l"] * (p["V_l"] - v) + J - G * v) / p["C"]

    return field


def ltc_step(cell: nn.Module, x: Array, v: Array, gap: float) -> Array:
    """Advance one sample of an LTC cell by the solver time ``gap``."""
    p, synapses = ltc_parameters(cell), cell.wiring.build(cell.input_size)
    polarity, polarity_x = synapses.recurrent.numpy(), synapses.sensory.numpy()
    d = gap / cell.substeps
    field = ltc_field(p, polarity, polarity_x, x)
    for _ in range(cell.substeps):
        if cell.solver == "fused":
            G, J = conductance_and_drive(p, polarity, polarity_x, x, v)
            ratio = p["C"] / d
            v = (ratio * v + p["g_l"] * p["V_l"] + J) / (ratio + p["g_l"] + G + cell.epsilon)
        else:
            v = explicit_step(field, v, d, cell.solver)
    return v


def neuronal_ltc_step(cell: nn.Module, phi, x: Array, h: Array, dt: float) -> Array:
    p = arrays(cell)
    tau, d = softplus(p["raw_tau"]), dt / cell.substeps

    def f(h: Array) -> Array:
        return p.get("w", 1.0) * phi(p["W_h"] @ h + p["W_x"] @ x + p["b"])

    for _ in range(cell.substeps):
        if cell.solver == "fused":
            h = (h + d * f(h) * p["A"]) / (1 + d * (1 / tau + f(h)))
        else:
            h = explicit_step(lambda h: -(1 / tau + f(h)) * h + f(h) * p["A"], h, d, cell.solver)
    return h


def closed_form(p: dict[str, Array], mode: str, phi, sign: int, z: Array, dt: float) -> Array:
    """Join the heads of one layer; ``p`` holds weight and bias, and w_tau and A if pure."""
    n = len(p["A"]) if mode == "pure" else None
    if mode == "pure":
        r = p["weight"] @ z + p["bias"]
        return p["A"] - p["A"] * np.exp(-dt * (np.abs(p["w_tau"]) + np.abs(r))) * r
    blocks = 4 if p["time_bias"] else 3
    n = p["weight"].shape[0] // blocks
    heads = [
        p["weight"][k * n : (k + 1) * n] @ z + p["bias"][k * n : (k + 1) * n] for k in range(blocks)
    ]
    gate = expit(sign * heads[2] * dt + (heads[3] if p["time_bias"] else 0.0))
    if mode == "no_gate":
        return phi(heads[0]) + gate * phi(heads[1])
    return phi(heads[0]) * (1 - gate) + phi(heads[1]) * gate


def cfc_step(cell: nn.Module, phi, backbone_phi, x: Array, h: Array, dt: float) -> Array:
    p = arrays(cell)
    z = np.concatenate([x, h])
    for k in range(len(cell.backbone.layers)):
        weight, bias = p[f"backbone.layers.{k}.weight"], p[f"backbone.layers.{k}.bias"]
        z = backbone_phi(weight @ z + bias)
    heads = {name.removeprefix("heads."): v for name, v in p.items() if name.startswith("heads.")}
    heads["time_bias"] = cell.heads.time_bias
    return closed_form(heads, cell.heads.mode, phi, cell.heads.time_sign, z, dt)


def wired_cfc_step(cell: nn.Module, phi, x: Array, h: Array, dt: float) -> Array:
    """Run the layers of a wiring, masking heads ff1 and ff2 only, and only on the input block."""
    p, synapses = arrays(cell), cell.wiring.build(cell.input_size)
    layers = cell.wiring.layers()
    sensory, recurrent = np.abs(synapses.sensory.numpy()), np.abs(synapses.recurrent.numpy())
    signal, states, start, before = x, [], 0, None
    for k, (_, neurons) in enumerate(layers):
        n = len(neurons)
        state = h[start : start + n]
        start += n
        masks = sensory[:, neurons] if before is None else recurrent[np.ix_(before, neurons)]
        heads = {key: p.get(f"layers.{k}.{key}") for key in ("weight", "bias", "w_tau", "A")}
        heads["time_bias"] = cell.layers[k].time_bias
        heads["weight"] = heads["weight"].copy()
        mode = cell.layers[k].mode
        for head in range(1 if mode == "pure" else 2):
            heads["weight"][head * n : (head + 1) * n, : len(signal)] *= masks.T
        z = np.concatenate([signal, state])
        signal = closed_form(heads, mode, phi, cell.layers[k].time_sign, z, dt)
        states.append(signal)
        before = neurons
    return np.concatenate(states)


def lstm_memory(
    p: dict[str, Array], forget_bias: float, x: Array, h: Array, c: Array
) -> tuple[Array, Array]:
    """Return the output and the memory of an LSTM whose blocks are i, f, g, o."""
    i, f, g, o = np.split(p["W_x"] @ x + p["W_h"] @ h + p["b"], 4)
    c = expit(f + forget_bias) * c + expit(i) * np.tanh(g)
    return expit(o) * np.tanh(c), c
