"""The packages that `pip install 'tunebook[run]'` brings, and what to say where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainable.errors import UserError

# The modules of the extra `run` in pyproject.toml, with the names by which people know what has them
RUN = {
    "PIL": "Pillow",
    "aiohttp": "aiohttp",
    "cloudpickle": "cloudpickle",
    "grpc": "gRPC",
    "huggingface_hub": "Hugging Face's client",
    "matplotlib": "Matplotlib",
    "mlflow": "MLflow",
    "onnx": "ONNX",
    "onnxruntime": "ONNX Runtime",
    "onnxscript": "ONNX Script",
    "optuna": "Optuna",
    "pandas": "pandas",
    "psutil": "psutil",
    "pyarrow": "Apache Arrow",
    "pynvml": "NVIDIA's management library",
    "ray": "Ray",
    "requests": "Requests",
    "safetensors": "safetensors",
    "scipy": "SciPy",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
    "sklearn": "scikit-learn",
    "sqlalchemy": "SQLAlchemy",
    "threadpoolctl": "threadpoolctl",
    "timm": "timm",
    "torch": "PyTorch",
    "torchcodec": "TorchCodec",
    "torchvision": "torchvision",
}
INSTALL = "pip install 'tunebook[run]'"


class NotInstalled(UserError):
    """A package is missing that the extra `run` brings; the message has the line that brings it."""


@contextmanager
def needing_run(what: str) -> Iterator[None]:
    """Raise NotInstalled where `what` imports a package of the extra `run` that is not installed.

    What an installed package misses of its own is no such case, and stays an ImportError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in RUN:
            raise
        raise NotInstalled(f"{what} needs {RUN[package]}: {INSTALL}") from error
