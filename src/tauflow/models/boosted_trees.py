"""Gradient boosted trees on summary features, as a module that a model file can hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_bool
from tauflow._internal.init_args import CaptureInitArgs
from tauflow.batch import SequenceBatch
from tauflow.data.summary_features import compute_summary_features
from tauflow.errors import ArgumentError

NO_CHILD = -1
"""Child of a leaf."""
Tree = tuple[int, dict[str, np.ndarray[Any, Any]]]
"""The output of a tree, and arrays of its nodes: ``feature``, ``threshold``, ``missing_left``,
``left``, ``right`` and ``value``. The first node is the root, and leaves have :data:`NO_CHILD` for
children."""


class AbstractTrees(nn.Module, metaclass=CaptureInitArgs):
    """Base of sums of regression trees.

    At a node a tree goes left if the feature is at most the threshold; if the feature is missing,
    it goes where training has said.

    Args:
        output_size: values, or logits of classes, O.
        trees: number of trees.
        nodes: number of their nodes.
        depth: largest number of decisions from a root to a leaf.
    """

    options: dict[str, Any]
    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    root: Tensor
    output: Tensor
    baseline: Tensor
    _float: torch.dtype = torch.float64

    def __init__(self, output_size: int, *, trees: int, nodes: int, depth: int) -> None:
        super().__init__()
        self.output_size = check_at_least(1, output_size=output_size)
        self.depth = check_at_least(0, depth=depth)
        check_at_least(0, trees=trees)
        check_at_least(0, nodes=nodes)
        for name in ("feature", "left", "right"):
            self.register_buffer(name, torch.zeros(nodes, dtype=torch.int64))
        self.register_buffer("missing_left", torch.zeros(nodes, dtype=torch.bool))
        for name in ("threshold", "value"):
            self.register_buffer(name, torch.zeros(nodes, dtype=self._float))
        self.register_buffer("root", torch.zeros(trees, dtype=torch.int64))
        self.register_buffer("output", torch.zeros(trees, dtype=torch.int64))
        self.register_buffer("baseline", torch.zeros(output_size, dtype=self._float))

    def predict_features(self, features: Tensor) -> Tensor:
        """Return the predictions for features, (N, O) for (N, K)."""
        answer = self.baseline.expand(len(features), -1).clone()
        if not len(self.root):
            return answer
        node = self.root.expand(len(features), -1)  # (N, trees)
        for _ in range(self.depth):
            value = features.gather(1, self.feature[node])
            goes_left = torch.where(
                value.isnan(), self.missing_left[node], value <= self.threshold[node]
            )
            child = torch.where(goes_left, self.left[node], self.right[node])
            node = torch.where(child == NO_CHILD, node, child)
        return answer.index_add_(1, self.output, self.value[node])


class BoostedTrees(AbstractTrees):
    r"""The sum of regression trees on summary features of each sequence.

    .. math::
        f_o = b_o + \sum_{k:\, o_k = o} \mathrm{tree}_k(s)

    with s the :func:`~tauflow.data.summary_features.compute_summary_features` of the steps so far,
    and o_k the output of tree k. The module is not trained by gradients: ``tauflow.runs.boosting``
    fits it by scikit-learn's histogram gradient boosting (Ke et al. 2017, "LightGBM: A Highly
    Efficient Gradient Boosting Decision Tree").

    Args:
        input_size: features I.
        output_size: values, or logits of classes, O.
        trees: number of trees.
        nodes: number of their nodes.
        depth: largest number of decisions from a root to a leaf.
        per_step: whether each step is answered, by what came until then, rather than the sequence.
    """

    uses_observed = True
    ignores_padding = True

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        trees: int,
        nodes: int,
        depth: int,
        per_step: bool = False,
    ) -> None:
        super().__init__(output_size, trees=trees, nodes=nodes, depth=depth)
        self.input_size = check_at_least(1, input_size=input_size)
        self.per_step = check_bool(per_step=per_step)

    def forward(
        self,
        x: Tensor,
        *,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Return the predictions, (B, T, O) or (B, O), and no state.

        Args:
            x: (B, T, I).
            dt: time since the previous step, (B, T); by default 1.
            mask: (B, T), false at padding.
            observed: (B, T, I), which values were measured; by default all.

        Raises:
            ShapeError: x has other axes, or the others do not fit it.
        """
        batch = SequenceBatch(x, x.new_zeros(len(x)), dt, mask, observed)
        where = batch.valid if self.per_step else None
        features = torch.from_numpy(compute_summary_features(batch, where=where).values)
        answer = self.predict_features(features.to(self.baseline.device)).to(x.dtype)
        if where is None:
            return answer, None
        padded = answer.new_zeros(*x.shape[:2], self.output_size)
        padded[where] = answer
        return padded, None


def join_trees(
    input_size: int, baseline: Sequence[float], trees: Sequence[Tree], *, per_step: bool
) -> BoostedTrees:
    """Return the module of trees.

    Args:
        input_size: features I of the sequences.
        baseline: what each output begins with.
        trees: with the columns of summary features.
        per_step: see :class:`BoostedTrees`.

    Raises:
        ArgumentError: a tree names an output, a feature or a child that is not there.
    """
    sizes = measure_trees(trees)
    module = BoostedTrees(input_size, len(baseline), per_step=per_step, **sizes)
    fill_trees(module, baseline, trees, 8 * input_size + 3)
    return module


def measure_trees(trees: Sequence[Tree]) -> dict[str, int]:
    """Return how many trees and nodes there are, and how many decisions the longest path takes.

    Raises:
        ArgumentError: a tree names a child that is not there.
    """
    return {
        "trees": len(trees),
        "nodes": sum(len(nodes["value"]) for _, nodes in trees),
        "depth": max((_measure_depth(nodes) for _, nodes in trees), default=0),
    }


def fill_trees(
    module: AbstractTrees, baseline: Sequence[float], trees: Sequence[Tree], columns: int
) -> None:
    """Write the nodes of trees to a module.

    Args:
        module: with room for as many.
        baseline: what each output begins with.
        trees: to write.
        columns: how many features they have to choose from.

    Raises:
        ArgumentError: a tree names an output or a feature that is not there.
    """
    module.baseline.copy_(torch.as_tensor(baseline, dtype=torch.float64))
    start = 0
    for number, (output, nodes) in enumerate(trees):
        inner = nodes["left"] != NO_CHILD
        if not 0 <= output < len(baseline) or (nodes["feature"][inner] >= columns).any():
            raise ArgumentError(f"tree {number} has an output or a feature that is not there.")
        module.root[number], module.output[number] = start, output
        part = slice(start, start + len(inner))
        for name in ("feature", "missing_left", "value"):
            getattr(module, name)[part] = torch.from_numpy(np.ascontiguousarray(nodes[name]))
        for name in ("left", "right"):
            children = np.where(inner, nodes[name] + start, NO_CHILD)
            getattr(module, name)[part] = torch.from_numpy(children)
        module.threshold[part] = _round_down(nodes["threshold"], module.threshold.dtype)
        start = part.stop
    module.eval()


def _round_down(threshold: np.ndarray[Any, Any], dtype: torch.dtype) -> Tensor:
    """Return thresholds that values of a type are at most where they are at most the given ones."""
    exact = torch.from_numpy(np.ascontiguousarray(threshold))
    rounded = exact.to(dtype)
    lower = torch.nextafter(rounded, rounded.new_tensor(-torch.inf))
    return torch.where(rounded.double() > exact, lower, rounded)


def _measure_depth(nodes: dict[str, np.ndarray[Any, Any]]) -> int:
    """Return how many decisions the longest path of a tree takes; children follow their parents."""
    depth = np.zeros(len(nodes["value"]), np.int64)
    for parent in np.flatnonzero(nodes["left"] != NO_CHILD):
        for child in (nodes["left"][parent], nodes["right"][parent]):
            if not parent < child < len(depth):
                raise ArgumentError("a child of a tree's node must come after it.")
            depth[child] = depth[parent] + 1
    return int(depth.max(initial=0))
