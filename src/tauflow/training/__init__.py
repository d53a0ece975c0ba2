"""Training: recipes, a loop that can be resumed, losses and metrics by name."""

from .callbacks import Callback, Training
from .checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .elementwise import Score
from .evaluation_loop import evaluate
from .loggers import log_to
from .loop import train
from .losses import LOSSES
from .metrics import METRICS
from .optim import attach_constraints, clip_gradients, make_optimizer, packed_parts
from .recipe import Recipe
from .result import TrainingResult

__all__ = [
    "LOSSES",
    "METRICS",
    "Callback",
    "Checkpoint",
    "Recipe",
    "Score",
    "Training",
    "TrainingResult",
    "attach_constraints",
    "clip_gradients",
    "evaluate",
    "log_to",
    "make_optimizer",
    "packed_parts",
    "read_checkpoint",
    "train",
    "write_checkpoint",
]
