"""Base class of whole models, which are more than a cell."""

from typing import Any, ClassVar

from torch import nn

from tauflow._internal.init_args import CaptureInitArgs


class AbstractWholeModel(nn.Module, metaclass=CaptureInitArgs):
    """Base of whole models; class attributes describe inputs and outputs.

    A model that trains on more than the error of its predictions has a method
    ``training_loss(batch, prediction_loss, *, epoch)``, which :func:`tauflow.training.train` calls.
    """

    paper: ClassVar[str]
    """Where the model was published."""
    uses_dt: ClassVar[bool] = True
    """Whether times change the result."""
    uses_observed: ClassVar[bool] = False
    """Whether it takes the (B, T, I) mask of measured features."""
    ignores_padding: ClassVar[bool] = True
    """Whether masked steps at the ends of sequences change nothing, so that training leaves them
    out where all sequences of a batch have them."""
    takes_images: ClassVar[bool] = False
    """Whether its input size is (channels, height, width) and not a number."""
    has_per_step_output: ClassVar[bool] = False
    """Whether it can give an output for every step, or only one per sequence."""
    is_causal: ClassVar[bool] = True
    """Whether the output at a step depends on the samples up to that step only. A model with one
    output per sequence has none at a step, and is not causal."""
    has_horizon: ClassVar[bool] = False
    """Whether it looks at times from 0 to its ``horizon``, an option, which is to be that of the
    data."""
    has_head: ClassVar[bool] = False
    """Whether it predicts targets by itself, so that no readout goes on top."""
    estimates_inputs: ClassVar[bool] = False
    """Whether what it predicts are the values of its first inputs, missing ones too."""
    answers_queries: ClassVar[bool] = False
    """Whether what it predicts are inputs, ``targets`` by number, at the times of queries."""

    options: dict[str, Any]
    """The arguments the model was built with; recorded automatically."""
    input_size: Any
    """Features per time point, or (channels, height, width) of images."""
    output_size: int
    """Width of what it returns."""
