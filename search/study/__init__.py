"""This package describes what a search is asked to do: a study as data, read from YAML."""

from search.study.study import (
    FACT_OF_PROBE,
    STUDY_FILE,
    WEIGHTS,
    Probe,
    Resources,
    SamplerKind,
    SchedulerKind,
    Study,
    StudyError,
    is_recipe,
    read_study,
    weights_path,
)

__all__ = [
    "FACT_OF_PROBE",
    "STUDY_FILE",
    "WEIGHTS",
    "Probe",
    "Resources",
    "SamplerKind",
    "SchedulerKind",
    "Study",
    "StudyError",
    "is_recipe",
    "read_study",
    "weights_path",
]
