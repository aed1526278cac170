"""Makes the folder of a finished search whose one trial is trained: small masks, one epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from search.study import Study
from tests.search.results.trained_search import write_trained
from tests.trainable.small_segmentations import mask_recipe, write_masks
from trainable.training.run import Run


def mask_study(root: Path, storage: Path, epochs: int = 1, **sections: Any) -> Study:
    """Return the study of a search around the small recipe for masks, whose images are below `root`."""
    tree = mask_recipe(root).tree()
    base = {name: tree[name] for name in ("task", "model", "precision", "evaluation")}
    return Study.from_tree(
        {
            "data": {"path": str(root), "image_size": 16},
            "base": {**base, "loop": {"batch_size": 4, "workers": 0}, "optimizer": tree["optimizer"]},
            "space": {"name": "quick"},
            "budget": {"trials": 1, "epochs": epochs},
            "storage": str(storage),
            **sections,
        }
    )


def trained_mask_search(folder: Path, tracking: dict[str, str] | None = None) -> Run:
    """Write the search's folder, which must be there, and return the run of its trial."""
    sizes = ((32, 32), (20, 40))
    study = mask_study(
        write_masks(folder.parent / "data", sizes=sizes), folder.parent, tracking=tracking or {}
    )
    return write_trained(folder, study)
