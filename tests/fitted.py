"""Calibrations as a fit would write them, for artifacts made by hand."""

from pcdc_runtime.calibration import Calibration, FieldCalibration, Figures, Threshold, field_digest

BEFORE, AFTER = Figures(40, 0.7, 0.9, 0.4, 0.2), Figures(40, 0.75, 0.6, 0.3, 0.05)
THRESHOLD = Threshold(0.8, 0.9, 0.95, 0.5, 40)


def fitted(artifact, name, method="nothing", temperature=1.0, bias=(), threshold=THRESHOLD):
    """One field's calibration, bound to the field as the artifact has it."""
    index = [field.name for field in artifact.fields].index(name)
    digest = field_digest(artifact, index)
    rows = 0 if method == "prior" else 60
    return FieldCalibration(name, digest, method, temperature, tuple(bias), rows, BEFORE, AFTER, threshold)


def calibration(artifact, *fields, weights="", scoring="joint"):
    """The file's content for these fields, with the empty digest of a model that is in no folder."""
    return Calibration(
        schema=artifact.name,
        model=artifact.model,
        artifact=artifact.digest,
        weights=weights,
        scoring=scoring,
        prompt_version=artifact.prompt_version,
        data="d" * 64,
        seed=7,
        fields=fields,
    )
