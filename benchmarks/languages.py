"""State tracking with known answers: regular languages, the word problem of A5, copying.

The languages are those of Delétang et al. 2023, "Neural networks and the Chomsky hierarchy", here
with a target at every step; the word problem of A5 is that of Merrill, Petty & Sabharwal 2024, "The
illusion of state in state-space models", and of Walker et al. 2025, "Structured linear CDEs";
selective copying that of Gu & Dao 2024, "Mamba".
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tauflow
from tauflow.errors import NonFiniteError
from tauflow.models import SequenceModel

Draw = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]
STEPS = 1500
BATCH, TEST, EMBEDDING = 64, 512, 16
RATES = (3e-3, 1e-2)
"""Largest learning rates; that of the run with the lowest loss on other sequences is taken."""
BUDGET = 12_000
"""Parameters at most, embedding and head included; neurons are as many multiples of 4 as fit."""
IGNORED = -100
_SYMBOLS, _COPIED = 8, 8
_MODULUS = 5


@dataclass(frozen=True)
class Task:
    """A task on sequences of tokens.

    Args:
        tokens: V.
        classes: of each target.
        draw: tokens and targets, (B, T) both, of B sequences of length T.
        lengths: shortest and longest of training.
        longer: a length that is tested beside the longest.
        scored: last steps whose answers count.
    """

    tokens: int
    classes: int
    draw: Draw
    lengths: tuple[int, int]
    longer: int
    scored: int = 1


def _draw_tokens(count: int, B: int, T: int, generator: torch.Generator) -> Tensor:
    return torch.randint(count, (B, T), generator=generator)


def draw_parity(B: int, T: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return bits, and whether the number of ones so far is odd."""
    x = _draw_tokens(2, B, T, generator)
    return x, x.cumsum(1) % 2


def draw_cycle(B: int, T: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return steps on a cycle of five places (back, stay, on), and the place reached."""
    x = _draw_tokens(3, B, T, generator)
    return x, (x - 1).cumsum(1) % _MODULUS


def draw_arithmetic(B: int, T: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return digits modulo 5 with +, - or * between them, and the value so far, left to right."""
    digits = _draw_tokens(_MODULUS, B, T, generator)
    signs = _draw_tokens(3, B, T, generator)
    is_digit = torch.arange(T) % 2 == 0
    value, values = digits[:, 0], [digits[:, 0]]
    for k in range(1, T):
        if is_digit[k]:
            sign, digit = signs[:, k - 1], digits[:, k]
            added = torch.where(sign == 0, value + digit, value - digit)
            value = torch.where(sign == 2, value * digit, added) % _MODULUS
        values.append(value)
    return torch.where(is_digit, digits, signs + _MODULUS), torch.stack(values, 1)


def make_product_table() -> Tensor:
    """Return which even permutation of five things g after h is, (60, 60), of places g and h."""
    even = [
        p
        for p in itertools.permutations(range(5))
        if sum(a > b for a, b in itertools.combinations(p, 2)) % 2 == 0
    ]
    place = {p: k for k, p in enumerate(even)}
    return torch.tensor([[place[tuple(g[h[i]] for i in range(5))] for h in even] for g in even])


_PRODUCTS = make_product_table()


def draw_a5(B: int, T: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return elements of A5, and the product so far, the newest on the left."""
    x = _draw_tokens(len(_PRODUCTS), B, T, generator)
    products = [x[:, 0]]
    for k in range(1, T):
        products.append(_PRODUCTS[x[:, k], products[-1]])
    return x, torch.stack(products, 1)


def draw_copying(B: int, T: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return eight symbols among blanks, and these in the last eight steps, whose tokens ask."""
    blank, ask = _SYMBOLS, _SYMBOLS + 1
    symbols = _draw_tokens(_SYMBOLS, B, _COPIED, generator)
    before = T - _COPIED
    places = torch.rand(B, before, generator=generator).argsort(1)[:, :_COPIED].sort(1).values
    x = torch.full((B, T), blank)
    x.scatter_(1, places, symbols)
    x[:, before:] = ask
    y = torch.full((B, T), IGNORED)
    y[:, before:] = symbols
    return x, y


TASKS = {
    "parity": Task(2, 2, draw_parity, (3, 40), 256),
    "cycle": Task(3, _MODULUS, draw_cycle, (3, 40), 256),
    "arithmetic": Task(_MODULUS + 3, _MODULUS, draw_arithmetic, (3, 40), 256),
    "a5": Task(60, 60, draw_a5, (3, 20), 100),
    "copying": Task(_SYMBOLS + 2, _SYMBOLS, draw_copying, (32, 64), 128, scored=_COPIED),
}
MODELS: dict[str, Mapping[str, Any]] = {
    "slice": {"scale": 0.1},
    "lstm": {},
    "min-gru": {},
    "s6": {},
    "cfc": {},
}


def build(task: Task, name: str) -> SequenceModel:
    """Return one layer with embedding and head, as wide as the budget allows."""
    for hidden_size in range(512, 0, -4):
        rnn = tauflow.build(name, EMBEDDING, hidden_size, **MODELS[name])
        model = SequenceModel(rnn, task.classes, vocabulary=task.tokens)
        if sum(p.numel() for p in model.parameters()) <= BUDGET:
            return model
    raise ValueError(f"no {name} has {BUDGET} parameters or fewer")


def measure(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Train once for each learning rate, and return accuracies at two lengths of the better."""
    task, seed = TASKS[plan["task"]], plan["seed"]
    trained = [train(task, plan["model"], plan["steps"], rate, seed) for rate in RATES]
    losses = []
    for model in trained:
        drawn = torch.Generator().manual_seed(2**30 + seed)
        with torch.no_grad():
            losses.append(float(compute_loss(model, *task.draw(TEST, task.lengths[1], drawn))))
    best = min(range(len(RATES)), key=losses.__getitem__)
    test = torch.Generator().manual_seed(2**31 - 1 - seed)
    accuracies = [score(trained[best], task, T, test) for T in (task.lengths[1], task.longer)]
    return {
        "accuracy": accuracies[0],
        "longer_accuracy": accuracies[1],
        "lr": RATES[best],
        "losses": losses,
        "hidden_size": trained[best].rnn.hidden_size,
        "parameters": sum(p.numel() for p in trained[best].parameters()),
    }


def train(task: Task, name: str, steps: int, rate: float, seed: int) -> SequenceModel:
    """Return a network trained on batches that are drawn for it, of one length each."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = build(task, name)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    low, high = task.lengths
    for _ in range(steps):
        T = int(torch.randint(low, high + 1, (), generator=generator))
        optimizer.zero_grad()
        compute_loss(model, *task.draw(BATCH, T, generator)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def compute_loss(model: SequenceModel, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of all answers that are asked for."""
    logits = predict(model, x).flatten(0, 1)
    return F.cross_entropy(logits, y.flatten(), ignore_index=IGNORED)


def predict(model: SequenceModel, x: Tensor) -> Tensor:
    """Return logits, (B, T, K), of tokens, (B, T)."""
    logits = model(x.unsqueeze(-1))[0]
    assert isinstance(logits, Tensor)
    return logits


@torch.no_grad()
def score(model: SequenceModel, task: Task, T: int, generator: torch.Generator) -> float | None:
    """Return the share of right answers at the end of sequences of a length.

    It is None where the state overflows, as that of SLiCE may on sequences longer than in training.
    """
    x, y = task.draw(TEST, T, generator)
    try:
        answers = predict(model, x).argmax(-1)
    except NonFiniteError:
        return None
    return float((answers == y)[:, -task.scored :].float().mean())
