"""Exports networks as programs that need none of their code, torch's `.pt2` and ONNX, and opens these."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.export import Dim, ExportedProgram

from trainable.errors import UserError, first_line
from trainable.recipe.yamlfile import write_whole
from trainable.tasks.exporter import AXES, Exporter, NumpyAnswer

ABOUT = "tunebook"  # both files have under this name what a program says of itself, as JSON
INPUT = "images"


class ExportError(UserError):
    """A network that cannot be exported, or an exported one that answers otherwise."""

    section = "an-export"
    exit_code = 1


def export_program(exporter: Exporter, network: nn.Module) -> ExportedProgram:
    """Return a network with what its task puts around it as torch's program, for any length of the axes that
    `exporter.example` names.

    It does not name the files of this machine's code. Raises ExportError if torch cannot trace the network.
    """
    batch, axes = exporter.example()
    sizes = {number: Dim(name, min=1) for number, name in enumerate(axes)}
    try:
        program = torch.export.export(exporter.module(network), (batch,), dynamic_shapes=(sizes,))
    except Exception as error:  # torch raises nearly anything for code that it cannot trace
        raise ExportError(
            f"model.pt2: torch.export cannot trace this network: {first_line(error)}"
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def write_pt2(program: ExportedProgram, file: Path, about: Mapping[str, Any]) -> None:
    """Write the program for `torch.export.load`, with `about` among its extra files."""
    write_whole(file, pt2_of(program, {ABOUT: json.dumps(about)}))


def pt2_of(program: ExportedProgram, extra_files: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a `.pt2` file. Given a path, torch ends the process where the disk is full."""
    content = io.BytesIO()
    torch.export.save(program, content, extra_files=dict(extra_files or {}))
    return content.getvalue()


def write_onnx(program: ExportedProgram, file: Path, about: Mapping[str, Any], output: str) -> None:
    """Write the program as ONNX: `images` [batch, height, width, C] -> what `output` names.

    `about` is an entry of its metadata. Raises ExportError for what ONNX has no operator for.
    """
    import onnx  # a second of imports that only a bundle needs

    try:
        exported = torch.onnx.export(
            program, dynamo=True, input_names=[INPUT], output_names=[output], verbose=False
        )
    except Exception as error:  # as of torch.export
        raise ExportError(
            f"model.onnx: torch.onnx cannot express this network: {first_line(error)}"
        ) from error
    assert exported is not None
    model = exported.model_proto
    _name_axes(model.graph)
    for node in model.graph.node:
        del node.metadata_props[:]  # lines and folders of this machine's code
    onnx.helper.set_model_props(model, {ABOUT: json.dumps(about)})
    write_whole(file, model.SerializeToString())


def _name_axes(graph: Any) -> None:
    """Give the axes of the images their names in place of torch's, such as s34."""
    axes = graph.input[0].type.tensor_type.shape.dim
    names = {axis.dim_param: name for axis, name in zip(axes, AXES, strict=False) if axis.dim_param}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in names:
                axis.dim_param = names[axis.dim_param]


def answer_of_onnx(file: Path) -> NumpyAnswer:
    """Return the function in an ONNX file, on the CPU, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {INPUT: images})[0]


def answer_of_pt2(file: Path) -> NumpyAnswer:
    """Return the function in a `.pt2` file, on the CPU."""
    module: Any = torch.export.load(file).module()

    def answer(images: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            found: NDArray[np.float32] = module(torch.from_numpy(images)).numpy()
        return found

    return answer
