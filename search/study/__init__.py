"""This package describes what a search is asked to do: a study as data, read from YAML."""

from search.study.asked import default_name, model_named, settings_of, study_asked, study_from
from search.study.study import (
    FACT_OF_PROBE,
    RECIPE_SECTIONS,
    STUDY_FILE,
    WEIGHTS,
    Probe,
    Resources,
    SamplerKind,
    SchedulerKind,
    Study,
    StudyError,
    read_study,
    weights_path,
)

__all__ = [
    "FACT_OF_PROBE",
    "RECIPE_SECTIONS",
    "STUDY_FILE",
    "WEIGHTS",
    "Probe",
    "Resources",
    "SamplerKind",
    "SchedulerKind",
    "Study",
    "StudyError",
    "default_name",
    "model_named",
    "read_study",
    "settings_of",
    "study_asked",
    "study_from",
    "weights_path",
]
