"""Models that the tests of prediction share."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():  # MLflow warns of its own type hints when this is imported
    warnings.simplefilter("ignore")
    import mlflow.pyfunc  # noqa: F401
