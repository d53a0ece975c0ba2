"""The liquid time-constant cell with conductance-based synapses: the LTC of every experiment."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_one_of, check_within
from tauflow.errors import ArgumentError
from tauflow.solvers import TABLEAUS, integrate_semilinear
from tauflow.solvers.semi_implicit import Pair, check_semilinear_solver
from tauflow.wirings import AbstractWiring, as_wiring, build_synapses

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .constraints import project_parameters
from .init import Generator, inverse_softplus_, random_signs_

LTC_VARIANTS: dict[str, dict[str, Any]] = {
    "ltc-2021": {
        "init": "ltc-2021",
        "constraint": "clip",
        "time_scale": 6.0,
        "epsilon": 0.0,
        "output_mapping": "none",
    },
    "ncps": {"init": "ncps", "constraint": "softplus-raw"},
    "cfc-torch": {
        "init": "cfc",
        "constraint": "clip",
        "dt_offset": 1.0,
        "output_mapping": "none",
    },
    "cfc-tf": {"init": "cfc", "constraint": "clip", "dt_offset": 1e-3, "substeps": 3},
}
"""Options that reproduce each released implementation: ``LTC(17, 32, **LTC_VARIANTS["ncps"])``.

``"ltc-2021"`` is the TensorFlow code behind the tables of the LTC paper (for its explicit solvers
set ``time_scale=0.6``), ``"ncps"`` the PyTorch library of that name, and ``"cfc-torch"`` and
``"cfc-tf"`` the LTC baselines of the CfC paper.
"""

_RANGES: dict[str, dict[str, tuple[float, float | None]]] = {
    "clip": {"w": (1e-5, 1e3), "w_x": (1e-5, 1e3), "g_l": (1e-5, 1e3), "C": (1e-6, 1e3)},
    "relu": dict.fromkeys(("w", "w_x", "g_l", "C"), (0.0, None)),
}


class LTCConfig(NamedTuple):
    """What an LTC is beside its tensors; see the arguments of :class:`LTCCell`."""

    solver: str
    substeps: int


class LTCCell(AbstractCell):
    r"""Liquid time-constant cell, conductance form.

    Each synapse from j to i has a maximal conductance w, a slope sigma, a midpoint mu and a
    reversal potential E; each neuron a capacitance C, a leak conductance g_l and a leak potential
    V_l. Sensory synapses read the mapped input u, recurrent ones the potentials v.

    .. math::
        C_i \dot v_i = g_{l,i} (V_{l,i} - v_i) + \sum_j w_{ji}\,
            \mathrm{sigmoid}(\sigma_{ji} (z_j - \mu_{ji}))\, (E_{ji} - v_i), \qquad z = [u; v]

    The fused solver takes the linear v at the new time, with d = dt / substeps:

    .. math::
        v_i' = \frac{C_i v_i + d\,(g_{l,i} V_{l,i} + \sum_j g_{ji} E_{ji})}
                    {C_i + d\,(g_{l,i} + \sum_j g_{ji} + \epsilon)}

    The state is v, (B, N). The output is the first M ("motor") potentials, mapped affinely.

    Source: Hasani et al. 2021, "Liquid Time-constant Networks", Eqs. 1 to 3, in the conductance
    form of the experiments (Lechner et al. 2020, "Neural circuit policies").

    Differs from the paper: Algorithm 1 repeats the fused step on the old state; the state is fed
    back here, as in every released implementation. The algorithm's neuronal form is
    :class:`~tauflow.cells.ltc_neuronal.NeuronalLTCCell`.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N, fully connected, or a wiring, which says how many.
        solver: ``"fused"``, ``"exponential"`` (conductances held over a step, and the linear flow
            that is left followed exactly), ``"euler"``, ``"midpoint"``, ``"heun"`` or ``"rk4"``.
            The first two are bounded for any time step; the explicit ones need d (g_l + sum of w) /
            C below 2 (2.79 with rk4; :meth:`max_stable_dt`), and blow up beyond: use more substeps,
            or one of the first two.
        substeps: solver steps per sample.
        constraint: how w, w_x, g_l and C stay positive. ``"softplus"``: by construction, with the
            drawn values as effective ones. ``"softplus-raw"``: the same, but the draw is the raw
            value, as in ``ncps``. ``"clip"``: the values are the parameters, and every step of a
            ``torch.optim`` optimizer that moves them ends with :meth:`project_`, which brings
            them back to the ranges of the released code. Who moves them otherwise calls it.
            ``"relu"``: the same, from 0 on, as ``apply_weight_constraints`` of ``ncps``. With
            ``"clip"`` and ``"relu"`` these four cannot be parametrized.
        init: ``"ncps"``, ``"cfc"`` (reversal potentials drawn +1 or -1 instead of the wiring's
            polarity) or ``"ltc-2021"`` (also w from 0.01, g_l = 1, C = 0.5).
        input_mapping: ``"affine"``, ``"linear"`` or ``"none"``: what happens to x first.
        output_mapping: the same, for the motor potentials.
        time_scale: solver time per unit of ``dt``.
        dt_offset: added to the scaled time step; 0 except to reproduce released variants.
        epsilon: added to the fused solver's denominator.
    """

    paper: ClassVar[str] = "Hasani et al. 2021, Liquid Time-constant Networks"
    is_flow = True
    takes_wiring = True

    synapses: Tensor
    synapses_x: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int | AbstractWiring,
        *,
        solver: str = "fused",
        substeps: int = 6,
        constraint: str = "softplus",
        init: str = "ncps",
        input_mapping: str = "affine",
        output_mapping: str = "affine",
        time_scale: float = 1.0,
        dt_offset: float = 0.0,
        epsilon: float = 1e-8,
    ) -> None:
        wiring = as_wiring(hidden_size)
        super().__init__(input_size, wiring.units)
        self.wiring = wiring
        self.solver = check_semilinear_solver(solver)
        self.substeps = check_at_least(1, substeps=substeps)
        self.constraint = check_one_of(
            ("softplus", "softplus-raw", *_RANGES), constraint=constraint
        )
        self.init = check_one_of(("ncps", "cfc", "ltc-2021"), init=init)
        self.input_mapping = check_one_of(("affine", "linear", "none"), input_mapping=input_mapping)
        self.output_mapping = check_one_of(
            ("affine", "linear", "none"), output_mapping=output_mapping
        )
        self.time_scale = check_within(1e-12, float("inf"), time_scale=time_scale)
        self.dt_offset = check_within(0.0, float("inf"), dt_offset=dt_offset)
        self.is_flow = dt_offset == 0
        self.epsilon = check_within(0.0, 1.0, epsilon=epsilon)

        synapses = build_synapses(wiring, input_size)
        D, N, M = input_size, wiring.units, wiring.output_size
        self.register_buffer("synapses", synapses.recurrent.abs().to(torch.get_default_dtype()))
        self.register_buffer("synapses_x", synapses.sensory.abs().to(torch.get_default_dtype()))
        self.w, self.mu, self.sigma, self.E = (nn.Parameter(torch.empty(N, N)) for _ in range(4))
        self.w_x, self.mu_x, self.sigma_x, self.E_x = (
            nn.Parameter(torch.empty(D, N)) for _ in range(4)
        )
        self.g_l, self.V_l, self.C = (nn.Parameter(torch.empty(N)) for _ in range(3))
        self.a_in, self.b_in = _make_map_parameters(input_mapping, D)
        self.a_out, self.b_out = _make_map_parameters(output_mapping, M)
        self.reset_parameters()
        if constraint in _RANGES:
            project_parameters(self)

    @property
    def output_size(self) -> int:
        """Number of motor neurons M."""
        return self.wiring.output_size

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw every parameter from the distributions that ``init`` names."""
        old = self.init == "ltc-2021"
        for w in (self.w, self.w_x):
            w.uniform_(0.01 if old else 0.001, 1.0, generator=generator)
        for mu, sigma in ((self.mu, self.sigma), (self.mu_x, self.sigma_x)):
            mu.uniform_(0.3, 0.8, generator=generator)
            sigma.uniform_(3.0, 8.0, generator=generator)
        self.V_l.uniform_(-0.2, 0.2, generator=generator)
        if old:
            self.g_l.fill_(1.0)
            self.C.fill_(0.5)
        else:
            self.g_l.uniform_(0.001, 1.0, generator=generator)
            self.C.uniform_(0.4, 0.6, generator=generator)
        if self.init == "ncps":
            synapses = self.wiring.build(self.input_size)
            self.E.copy_(synapses.recurrent)
            self.E_x.copy_(synapses.sensory)
        else:
            random_signs_(self.E, generator)
            random_signs_(self.E_x, generator)
        if self.constraint == "softplus":
            for positive in (self.w, self.w_x, self.g_l, self.C):
                inverse_softplus_(positive)
        for slope, offset in ((self.a_in, self.b_in), (self.a_out, self.b_out)):
            if slope is not None:
                slope.fill_(1.0)
            if offset is not None:
                offset.zero_()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the state of another cell: of a copy, or out of a pickle."""
        super().__setstate__(state)
        if self.constraint in _RANGES:
            project_parameters(self)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute, as a parametrization begins; of what is projected it is an error."""
        if name in _RANGES.get(self.constraint, ()):
            raise ArgumentError(
                f"{type(self).__name__}: constraint={self.constraint!r} keeps {name} in its range "
                "by changing it after each step of an optimizer, and what a parametrization "
                "computes cannot be changed so. Choose constraint='softplus'."
            )
        super().__delattr__(name)

    @torch.no_grad()
    def max_stable_dt(self) -> float:
        """Return what the largest conductance to capacitance allows the explicit solvers."""
        if self.solver not in TABLEAUS:
            return math.inf
        w, w_x = self.constrain(self.w) * self.synapses, self.constrain(self.w_x) * self.synapses_x
        most = (self.constrain(self.g_l) + w.sum(0) + w_x.sum(0)) / self.constrain(self.C)
        span = TABLEAUS[self.solver].interval * self.substeps / float(most.max())
        return max(0.0, (span - self.dt_offset) / self.time_scale)

    @torch.no_grad()
    def project_(self) -> None:
        """Clip w, w_x, g_l and C, if ``constraint`` is ``"clip"`` or ``"relu"``."""
        for name, (low, high) in _RANGES.get(self.constraint, {}).items():
            getattr(self, name).clamp_(low, high)

    def constrain(self, parameter: Tensor) -> Tensor:
        """Return the effective value of one of the constrained parameters."""
        return parameter if self.constraint in _RANGES else F.softplus(parameter)

    def static_config(self) -> LTCConfig:
        """Return the solver."""
        return LTCConfig(self.solver, self.substeps)

    def packed_parameters(self, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """Return weights (4, D, N) and (4, N, N), leak (2, N) and C (N,).

        Weights are sigma, mu, w and E of every synapse, w being 0 where no synapse is; leak is
        g_l V_l and g_l, with epsilon added for the fused solver.

        Args:
            dtype: to compute them in, if not their own.
        """
        parameters: list[Tensor] = [
            *(self.w_x, self.mu_x, self.sigma_x, self.E_x, self.w, self.mu, self.sigma, self.E),
            *(self.g_l, self.V_l, self.C),
        ]
        w_x, mu_x, sigma_x, E_x, w, mu, sigma, E, g_l, V_l, C = (
            parameters if dtype is None else [parameter.to(dtype) for parameter in parameters]
        )
        g_l = self.constrain(g_l)
        conductance = g_l + self.epsilon if self.solver == "fused" else g_l
        return (
            torch.stack((sigma_x, mu_x, self.constrain(w_x) * self.synapses_x, E_x)),
            torch.stack((sigma, mu, self.constrain(w) * self.synapses, E)),
            torch.stack((g_l * V_l, conductance)),
            self.constrain(C),
        )

    def map_input(self, x: InputTensor, dt: DtTensor) -> tuple[InputTensor, DtTensor]:
        """Return the mapped input, and the time to cover."""
        return _apply_affine(x, self.a_in, self.b_in), self.time_scale * dt + self.dt_offset

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the mapped input, and the time to cover; synapses and neurons."""
        return Precomputed(self.map_input(x, dt), self.packed_parameters())

    def update(
        self, h: StateTensor, u: Float[Tensor, "B I"], span: Float[Tensor, "B 1"], *fixed: Tensor
    ) -> StateTensor:
        """Advance the potentials over the time to cover, holding the input."""
        return ltc_update(self.static_config(), h, u, span, *fixed)

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch M"]:
        """Return the mapped potentials of the motor neurons."""
        return _apply_affine(h[..., : self.output_size], self.a_out, self.b_out)


def ltc_update(
    config: LTCConfig,
    v: StateTensor,
    u: Float[Tensor, "B I"],
    span: Float[Tensor, "B 1"],
    weights_x: Float[Tensor, "4 I S"],
    weights: Float[Tensor, "4 S S"],
    leak: Float[Tensor, "2 S"],
    C: Float[Tensor, " S"],
) -> StateTensor:
    """Return the potentials after the time to cover, holding the mapped input."""
    recurrent = weights.unbind()
    sensory = synaptic_currents(u, *weights_x.unbind())
    return integrate_potentials(
        config, v, span, sensory, lambda v: synaptic_currents(v, *recurrent), leak, C
    )


def integrate_potentials(
    config: LTCConfig,
    v: Float[Tensor, "B S"],
    span: Float[Tensor, "B 1"],
    sensory: Pair,
    recurrent: Callable[[Tensor], Pair],
    leak: Float[Tensor, "2 S"],
    C: Float[Tensor, " S"],
) -> Float[Tensor, "B S"]:
    """Return the potentials after the time to cover.

    Args:
        config: the solver.
        v: the potentials before.
        span: the time to cover.
        sensory: what the input's synapses add to drive and conductance, (B, N) each. It is held,
            and they conduct the same in every sub-step.
        recurrent: maps potentials to the same of the recurrent synapses.
        leak: the leak's drive and conductance.
        C: capacitances.
    """
    drive_x, conductance_x = sensory[0] + leak[0], sensory[1] + leak[1]

    def terms(v: Tensor) -> Pair:
        current, conductance = recurrent(v)
        return drive_x + current, conductance_x + conductance

    return integrate_semilinear(
        terms, v, span, solver=config.solver, substeps=config.substeps, capacity=C
    )


def synaptic_currents(
    z: Tensor, sigma: Tensor, mu: Tensor, w: Tensor, E: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the summed conductance x reversal and conductance of sources z, (B, N) each."""
    g = w * torch.sigmoid(sigma * (z.unsqueeze(-1) - mu))  # (B, sources, N)
    return (g * E).sum(-2), g.sum(-2)


def _make_map_parameters(kind: str, size: int) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    slope = None if kind == "none" else nn.Parameter(torch.empty(size))
    offset = nn.Parameter(torch.empty(size)) if kind == "affine" else None
    return slope, offset


def _apply_affine(z: Tensor, slope: Tensor | None = None, offset: Tensor | None = None) -> Tensor:
    z = z if slope is None else z * slope
    return z if offset is None else z + offset
