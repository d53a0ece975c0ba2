r"""Universal approximation, shown: liquid time-constant networks that imitate dynamical systems.

Theorem 3 says that for every bounded system, compact set of initial values, time span and
:math:`\epsilon` there is an autonomous liquid time-constant network with N hidden neurons and n
output neurons, and an initial state for each initial value, with

.. math::
    \max_t | x(t) - u(t) | < \epsilon

where u are the outputs. It does not say how to find one. Here networks without input are fitted to
trajectories, and judged on initial values that they were not fitted to; the initial state of the
network is an affine map of that of the system, as in the proof.

Source: Hasani et al. 2021, "Liquid Time-constant Networks", Theorem 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_positive
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.sequence import LTC
from tauflow.wirings import FullyConnected

from .dynamical_systems import SYSTEMS, DynamicalSystem

_TIME_STEP = (
    0.1  # between points, in the network's unit of time; its time constants start around it
)


class AutonomousLTC(nn.Module):
    """A liquid time-constant network without input, started from a point of another system.

    Args:
        size: components n of the other system, and output neurons.
        hidden: further neurons N.
        substeps: solver steps per point.
    """

    def __init__(self, size: int, hidden: int, *, substeps: int = 6) -> None:
        super().__init__()
        units = check_at_least(1, size=size) + check_at_least(0, hidden=hidden)
        self.start = nn.Linear(size, units)
        # The constant input has no effect but that of a bias, which synapses have anyway.
        self.rnn = LTC(
            1, FullyConnected(units, size), substeps=substeps, init="cfc", input_mapping="none"
        )

    def forward(self, x0: Float[Tensor, "B n"], points: int) -> Float[Tensor, "B P n"]:
        """Return the outputs at that many points, the first one at the start."""
        state = self.start(x0)
        first = self.rnn.cell.readout(state).unsqueeze(1)
        if points == 1:
            return first
        nothing = x0.new_zeros(x0.shape[0], points - 1, 1)
        rest, _ = self.rnn(nothing, state, dt=_TIME_STEP)
        return torch.cat([first, rest], dim=1)


@dataclass(frozen=True, eq=False)
class Approximation:
    """Errors of networks of growing size that imitate a system, on held-out initial values.

    Errors are in units of each component's standard deviation over the training trajectories.

    Args:
        title: name of the system.
        axes: two components that show it best.
        t: times of the points.
        target: held-out trajectories.
        networks: the fitted networks' trajectories, one per size.
        neurons: their hidden neurons N.
        largest_error: for each network, max over points and trajectories of ``|x - u|``, the
            Euclidean norm.
        rms_error: root mean square over points, trajectories and components.
        training_error: the same on the trajectories fitted to.
    """

    title: str
    axes: tuple[int, int]
    t: Float[Tensor, " P"]
    target: Float[Tensor, "B P n"]
    networks: tuple[Float[Tensor, "B P n"], ...]
    neurons: tuple[int, ...]
    largest_error: tuple[float, ...]
    rms_error: tuple[float, ...]
    training_error: tuple[float, ...]


def approximate_system(
    system: str | DynamicalSystem,
    neurons: Sequence[int] = (1, 4, 16, 64),
    *,
    trajectories: int = 1024,
    held_out: int = 32,
    points: int = 50,
    span: float | None = None,
    steps: int = 1500,
    batch_size: int = 32,
    lr: float = 0.02,
    seed: int = 0,
) -> Approximation:
    """Fit networks of several sizes to trajectories of a system.

    Adam with a cosine schedule and gradients clipped to norm 1, on the mean squared error over
    whole trajectories. On one core a network takes about a minute with the defaults.

    Args:
        system: a name of :data:`~tauflow_papers.theory.dynamical_systems.SYSTEMS`, or a system.
        neurons: hidden neurons N of each network.
        trajectories: trajectories to fit to.
        held_out: trajectories to judge on.
        points: points per trajectory.
        span: time of a trajectory; by default that of the system.
        steps: optimizer steps.
        batch_size: trajectories per step.
        lr: learning rate at the start.
        seed: of initial values, weights and batches.

    Raises:
        UnknownNameError: there is no such system.
        ArgumentError: there is no network to fit, or a component of the system never changes.
    """
    chosen = SYSTEMS[system] if isinstance(system, str) else system
    if len(neurons) == 0:
        raise ArgumentError("neurons is empty; name the hidden neurons of at least one network.")
    check_positive(lr=lr)
    generator = torch.Generator().manual_seed(seed)
    count = check_at_least(1, trajectories=trajectories)
    start = chosen.initial_values(count + check_at_least(1, held_out=held_out), generator)
    t, x = chosen.trajectories(start, points, span=span)
    mean, scale = x[:count].mean(dim=(0, 1)), x[:count].std(dim=(0, 1))
    if not bool((scale > 0).all()):
        still = int((scale > 0).int().argmin())
        raise ArgumentError(
            f"{chosen.title}: component {still} is the same all along "
            f"{format_count(count, 'trajectory', 'trajectories')}, so "
            "that its errors have no unit. Give more trajectories, or a system without it."
        )
    scaled = ((x - mean) / scale).to(torch.get_default_dtype())
    fitted, judged = scaled[:count], scaled[count:]
    networks, largest, rms, training = [], [], [], []
    for hidden in neurons:
        network = _fit(
            fitted,
            hidden,
            check_at_least(1, steps=steps),
            check_at_least(1, batch_size=batch_size),
            lr,
            seed,
        )
        with torch.no_grad():
            u = network(judged[:, 0], points)
            error = u - judged
            training.append(_compute_rms(network(fitted[:, 0], points) - fitted))
        networks.append(u.double() * scale + mean)
        largest.append(float(torch.linalg.vector_norm(error, dim=-1).max()))
        rms.append(_compute_rms(error))
    return Approximation(
        chosen.title,
        chosen.axes,
        t,
        x[count:],
        tuple(networks),
        tuple(neurons),
        tuple(largest),
        tuple(rms),
        tuple(training),
    )


def _fit(
    target: Tensor, hidden: int, steps: int, batch_size: int, lr: float, seed: int
) -> AutonomousLTC:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AutonomousLTC(target.shape[2], hidden).to(target.dtype)
    batches = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(target), (batch_size,), generator=batches)
        batch = target[rows]
        loss = (network(batch[:, 0], batch.shape[1]) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return network


def _compute_rms(error: Tensor) -> float:
    return float(error.square().mean().sqrt())
