"""Exports a network as a program that needs none of its code: torch's `.pt2`, and ONNX."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from trainable.bundle.classifier import Classifier
from trainable.bundle.segmenter import Segmenter
from trainable.errors import UserError, first_line
from trainable.recipe.yamlfile import write_whole

ABOUT = "tunebook"
"""Both files have, under this name, what a program says of itself, as JSON."""
INPUT, OUTPUT, OUTPUT_OF_MASKS = "images", "probabilities", "logits"
AXES = ("batch", "height", "width")
EXAMPLE = (2, 24, 32)
"""The example that a network is traced with has this size; no size of 1, which torch would fix."""


class ExportError(UserError):
    """Says that a network cannot be exported, or that what was exported answers otherwise."""

    exit_code = 1


def export_program(module: Classifier | Segmenter) -> ExportedProgram:
    """Return a module as torch's program: a classifier for any number of images of any height and width, a
    segmenter for any number of windows.

    It does not name the files of this machine's code. Raises ExportError if torch cannot trace the network.
    """
    example, axes = _example_of(module)
    sizes = {number: Dim(name, min=1) for number, name in enumerate(axes)}
    try:
        program = torch.export.export(module, (example,), dynamic_shapes=(sizes,))
    except Exception as error:  # torch raises nearly anything for code that it cannot trace
        raise ExportError(
            f"model.pt2: torch.export cannot trace this network: {first_line(error)}"
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def _example_of(module: Classifier | Segmenter) -> tuple[Tensor, tuple[str, ...]]:
    """Return images that a module is traced with, and their axes that may have any length."""
    if isinstance(module, Classifier):
        return torch.zeros(*EXAMPLE, module.form.channels, dtype=torch.uint8), AXES
    return torch.zeros(EXAMPLE[0], module.side, module.side, module.channels), AXES[:1]


def write_pt2(program: ExportedProgram, file: Path, about: Mapping[str, Any]) -> None:
    """Write the program for `torch.export.load`, with `about` among its extra files."""
    write_whole(file, pt2_of(program, {ABOUT: json.dumps(about)}))


def pt2_of(program: ExportedProgram, extra_files: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a `.pt2` file. Given a path, torch ends the process where the disk is full."""
    content = io.BytesIO()
    torch.export.save(program, content, extra_files=dict(extra_files or {}))
    return content.getvalue()


def write_onnx(program: ExportedProgram, file: Path, about: Mapping[str, Any]) -> None:
    """Write the program as ONNX: `images` [batch, height, width, C] -> `probabilities`, or `logits`.

    `about` is an entry of its metadata. Raises ExportError for what ONNX has no operator for.
    """
    import onnx  # a second of imports that only a bundle needs

    output = OUTPUT_OF_MASKS if "values" in about else OUTPUT
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
