"""Convert programs of ``torch.export`` to ONNX graphs."""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.fx
from torch import Tensor
from torch.export import ExportedProgram

from tauflow._internal.optional_deps import require
from tauflow.errors import ExportError

from .parity import RunExported

_ANSI_CODES = re.compile(r"\x1b\[[0-9;]*m")
_NOISY_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir")


def require_all() -> None:
    """Raise ``MissingExtraError`` unless all libraries of the extra ``onnx`` are installed."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require(module, extra="onnx")


def to_onnx_graph(
    traced: ExportedProgram,
    *,
    opset: int,
    names: Mapping[str, str],
    axes: Mapping[str, Sequence[str | int]],
) -> Any:
    """Return a program as an ``onnx.ModelProto``.

    Args:
        traced: a program whose outputs are y and h_out.
        opset: version of the operators.
        names: other names of inputs and outputs; the rest keep theirs.
        axes: names and sizes of the axes of each.

    Raises:
        MissingExtraError: onnx is not installed.
        ExportError: the exporter has no operator for something, or the graph is not valid.
    """
    onnx = require("onnx", extra="onnx")
    inputs = [str(name) for name in traced.graph_signature.user_inputs]
    outputs = ["y", "h_out"]
    with _silence_exporters():
        try:
            exported = torch.onnx.export(
                traced,
                (),
                dynamo=True,
                input_names=[names.get(name, name) for name in inputs],
                output_names=[names.get(name, name) for name in outputs],
                opset_version=opset,
                verbose=False,
            )
            assert exported is not None
            model = exported.model_proto
        except torch.onnx.OnnxExporterError as error:
            raise ExportError(
                f"the model cannot be an ONNX graph: {_innermost_message(error)}"
            ) from error
    _restore_double_constants(model.graph, exported.exported_program or traced, onnx)
    _remove_stack_traces(model.graph)
    _set_axis_names(
        model.graph, {names.get(name, name): axes[name] for name in (*inputs, *outputs)}
    )
    model.graph.name = "tauflow"
    onnx.checker.check_model(model, full_check=True)
    return model


def _restore_double_constants(graph: Any, program: ExportedProgram, onnx: Any) -> None:
    """Write numbers that stand in a program as such with all their digits into a graph of doubles.

    The exporter keeps them with those of single precision.
    """
    exact: dict[float, set[float]] = {}
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            for number in (*node.args, *node.kwargs.values()):
                if type(number) is float:
                    exact.setdefault(float(np.float32(number)), set()).add(number)
    for inner in _iter_graphs(graph):
        for tensor in inner.initializer:
            if tensor.data_type != onnx.TensorProto.DOUBLE:
                continue
            value = onnx.numpy_helper.to_array(tensor)
            if value.size != 1:
                continue
            exact_values = exact.get(float(value.item()), set())
            if len(exact_values) == 1:
                restored = np.full(value.shape, next(iter(exact_values)))
                tensor.CopyFrom(onnx.numpy_helper.from_array(restored, tensor.name))


def _innermost_message(error: BaseException) -> str:
    """Return the first line of the exporter's innermost error, which names what it lacks."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = _ANSI_CODES.sub("", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def make_onnx_runner(model: Any, names: Mapping[str, str]) -> RunExported:
    """Return an ``onnx.ModelProto`` as something that runs, with one thread.

    It is called with tensors by our names of the inputs, and returns y and h_out.
    """
    runtime = require("onnxruntime", extra="onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run(inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        feed = {names.get(name, name): tensor.numpy() for name, tensor in inputs.items()}
        y, h = session.run([names.get(name, name) for name in ("y", "h_out")], feed)
        return torch.from_numpy(y), torch.from_numpy(h)

    return run


def _set_axis_names(graph: Any, axes: Mapping[str, Sequence[str | int]]) -> None:
    """Give the free axes of every value the names that they have in the inputs."""
    renamed: dict[str, str] = {}
    for value in graph.input:
        for dim, axis in zip(value.type.tensor_type.shape.dim, axes[value.name], strict=True):
            if dim.dim_param:
                renamed[dim.dim_param] = str(axis)
    for inner in _iter_graphs(graph):
        for value in (*inner.input, *inner.output, *inner.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = renamed.get(dim.dim_param, dim.dim_param)


def _remove_stack_traces(graph: Any) -> None:
    """Remove what says where in whose files a node came from."""
    for inner in _iter_graphs(graph):
        for part in (inner, *inner.node, *inner.value_info, *inner.input, *inner.output):
            del part.metadata_props[:]
            part.doc_string = ""


def _iter_graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _iter_graphs(attribute.g)


@contextmanager
def _silence_exporters() -> Iterator[None]:
    """Keep what the exporters say of libraries that are not theirs off the terminal."""
    loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
