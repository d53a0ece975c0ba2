"""One sub-step of each solver of the LTC, and its gradients; equations in :mod:`.numba_loop`."""

# mypy: ignore-errors

from tauflow.kernels.cpu.jit import EXACT_DIVISION, f4, inline
from tauflow.kernels.cpu.math import relaxation_factors

_ZERO = f4(0.0)
_ONE = f4(1.0)


@inline(force=True, math=EXACT_DIVISION)  # without a gap, C v / C is v
def fused_step(v, drive, conductance, delta, C, after, reciprocal):
    """Write the next potentials and 1 / m."""
    for j in range(v.shape[0]):
        m = C[j] + delta * conductance[j]
        after[j] = (C[j] * v[j] + delta * drive[j]) / m
        reciprocal[j] = _ONE / m


@inline(force=True)
def fused_dt_slope(after, drive, conductance, reciprocal, slope):
    """Write the derivative of the next potentials by the length of the sub-step."""
    for j in range(after.shape[0]):
        slope[j] = (drive[j] - conductance[j] * after[j]) * reciprocal[j]


@inline(force=True, math=EXACT_DIVISION)
def exponential_step(v, drive, conductance, delta, C, after, saved_conductance):
    """Write the next potentials of the exponential solver, and keep the conductances."""
    for j in range(v.shape[0]):
        share = delta / C[j]
        e, phi, _ = relaxation_factors(share * conductance[j])
        after[j] = e * v[j] + share * drive[j] * phi
        saved_conductance[j] = conductance[j]


@inline(force=True)
def exponential_dt_slope(v, drive, conductance, delta, C, slope):
    """Write how the next potentials of the exponential solver react to the gap."""
    for j in range(v.shape[0]):
        share = delta / C[j]
        e, phi, bend = relaxation_factors(share * conductance[j])
        sent = drive[j] * phi
        slope[j] = (sent + conductance[j] * (share * sent * bend - e * v[j])) / C[j]
