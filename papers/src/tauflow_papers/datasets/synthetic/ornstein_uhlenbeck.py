r"""Samples of one Ornstein-Uhlenbeck path, to be fitted exactly; generated, never downloaded.

.. math::
    \tau\, dz = \lambda z\, dt + u\, dt + \sigma\, dw

Between two samples an interval Δ apart the path is known in closed form, with :math:`\xi` normal:

.. math::
    z' = m + (z - m)\, e^{\lambda \Delta / \tau}
         + s \sqrt{1 - e^{2 \lambda \Delta / \tau}}\; \xi,
    \qquad m = -\frac{u}{\lambda}, \quad s^2 = \frac{\sigma^2}{2 \tau |\lambda|}
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_finite, check_seed, check_within
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData

Floats = NDArray[np.float64]

ORNSTEIN_UHLENBECK = DatasetCard(
    name="ornstein-uhlenbeck",
    title="Ornstein-Uhlenbeck path",
    task="regress",
    input_size=30,
    target_size=30,
    time_unit="s",
    sizes=(1, 1, 1),
    source=(
        "generated; Kim et al. 2022, Gated neural ODEs: trainability, expressivity and "
        "interpretability, Section 5.3 and Appendix F"
    ),
    licence="none needed (generated)",
    split="none: all three parts are the same path, as the question is how well it can be fitted",
    loss="mse",
    metric="mse",
    notes=(
        "A measure of expressivity, not of generalisation: the paper reports the lowest training "
        "error of any epoch, which is what selection on the validation part gives here.",
        "The input is constant and says nothing; the path has to come from the initial state.",
        "Samples are drawn from the exact transition law. The authors integrate with a stochastic "
        "Runge-Kutta method (SOSRI) in Julia; their path cannot be drawn again in Python.",
        "The state that the path starts from is not published. By default it is drawn from the "
        "stationary law; the option start gives a value one interval before the first sample.",
        "By default a model that gives the mean, 1, at every step has an error of about 0.5.",
    ),
)


@dataclass(frozen=True)
class OrnsteinUhlenbeckProcess:
    """An Ornstein-Uhlenbeck process with independent dimensions.

    Args:
        tau: time constant, in seconds.
        rate: λ, below 0.
        drive: u, the constant input.
        noise: σ.
    """

    tau: float = 1.0
    rate: float = -1.0
    drive: float = 1.0
    noise: float = 1.0

    @property
    def mean(self) -> float:
        """Stationary mean."""
        return -self.drive / self.rate

    @property
    def deviation(self) -> float:
        """Stationary standard deviation."""
        return self.noise / float(np.sqrt(-2.0 * self.tau * self.rate))

    def sample(
        self,
        steps: int,
        size: int,
        interval: float,
        rng: np.random.RandomState,
        *,
        start: float | None = None,
    ) -> Floats:
        """Draw samples of one path, at ``interval``, 2 ``interval``, ...

        Args:
            steps: number of samples T.
            size: number of dimensions D.
            interval: time between samples, in seconds.
            rng: source of random numbers.
            start: every dimension at time 0; by default drawn from the stationary law.

        Returns:
            Samples, (T, D).
        """
        away = self.deviation * rng.standard_normal(size)  # distance from the mean
        if start is not None:
            away = np.full(size, start - self.mean)
        keep = np.exp(self.rate * interval / self.tau)
        renew = self.deviation * np.sqrt(-np.expm1(2.0 * self.rate * interval / self.tau))
        path = np.empty((steps, size))
        for step in range(steps):
            away = keep * away + renew * rng.standard_normal(size)
            path[step] = self.mean + away
        return path


def load_ornstein_uhlenbeck(
    root: str | Path | None = None,
    *,
    download: bool = True,
    dimensions: int = 30,
    steps: int = 100,
    interval: float = 1.0,
    tau: float = 1.0,
    rate: float = -1.0,
    drive: float = 1.0,
    noise: float = 1.0,
    start: float | None = None,
    seed: int = 0,
) -> TaskData:
    """Generate one path; the training, validation and test part are all that path.

    Args:
        root: not used; nothing is stored.
        download: not used; nothing is downloaded.
        dimensions: of the path, and of the constant input.
        steps: number of samples.
        interval: seconds between samples.
        tau: time constant of the process, in seconds.
        rate: λ, below 0.
        drive: the constant input u.
        noise: σ.
        start: value of every dimension one interval before the first sample; by default drawn from
            the stationary law.
        seed: of the path.

    Raises:
        ArgumentError: an option is outside its range.
    """
    process = OrnsteinUhlenbeckProcess(
        tau=check_within(1e-6, 1e6, tau=tau),
        rate=check_within(-1e6, -1e-6, rate=rate),
        drive=check_finite(drive=drive),
        noise=check_within(0.0, 1e6, noise=noise),
    )
    check_within(1e-6, 1e6, interval=interval)
    check_at_least(1, dimensions=dimensions)
    rng = np.random.RandomState(check_seed(32, seed=seed))
    path = process.sample(
        check_at_least(1, steps=steps),
        dimensions,
        interval,
        rng,
        start=None if start is None else check_finite(start=start),
    )
    batch = SequenceBatch(
        x=torch.full((1, steps, dimensions), float(drive)),
        y=torch.from_numpy(path[None].astype(np.float32)),
        dt=torch.full((1, steps), float(interval)),
    )
    card = replace(ORNSTEIN_UHLENBECK, input_size=dimensions, target_size=dimensions)
    return TaskData(card, train=batch, valid=batch, test=batch)
