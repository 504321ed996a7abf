"""The logged model. MLflow copies this file into the model and runs it there, by itself.

So it imports nothing of this package: a model trained today is loaded and served anywhere, with no
more than the packages it names in its requirements.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc.model import PythonModel

__all__ = ["OccupationClassifier"]


class OccupationClassifier(PythonModel):
    """From biographies, in a column, to one probability for each occupation.

    Its files lie in one folder: ``about.json``, and either ``estimator.joblib``, a scikit-learn
    classifier from a frame, or ``encoder/``, a model of the Hugging Face kind with its tokenizer,
    and ``head.safetensors``, one hidden layer on its vectors.

    Attributes
    ----------
    about : dict
        ``text_column``; ``classes``, the names of the columns that come out; of an encoder also
        ``pooling``, ``normalize`` and ``max_length``.
    estimator : sklearn.base.BaseEstimator or None
    encoder, tokenizer : object or None
    head : dict of str to torch.Tensor
        ``hidden.weight``, ``hidden.bias``, ``output.weight``, ``output.bias``.
    """

    _BATCH = 32

    def load_context(self, context: Any) -> None:
        """Load the files, the encoder to a GPU where there is one."""
        folder = Path(context.artifacts["classifier"])
        self.about: dict[str, Any] = json.loads((folder / "about.json").read_text("utf-8"))
        self.estimator: Any = None
        self.encoder: Any = None
        self.tokenizer: Any = None
        self.head: dict[str, Any] = {}
        if (folder / "estimator.joblib").is_file():
            import joblib  # type: ignore[import-untyped]

            self.estimator = joblib.load(folder / "estimator.joblib")
            return
        import torch
        from safetensors.torch import load_file
        from transformers import AutoModel, AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.encoder = AutoModel.from_pretrained(folder / "encoder").to(device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder / "encoder")
        self.head = load_file(folder / "head.safetensors")

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return one row a bio, one column an occupation."""
        texts = model_input[self.about["text_column"]]
        classes = self.about["classes"]
        if self.estimator is not None:
            columns = list(self.estimator.classes_)
            frame = pd.DataFrame({self.about["text_column"]: texts})
            known = pd.DataFrame(self.estimator.predict_proba(frame), columns=columns)
            found = known.reindex(columns=classes, fill_value=0.0)
        else:
            found = pd.DataFrame(self._encode_and_classify(list(texts)), columns=classes)
        found.index = model_input.index
        return found.astype("float64")

    def _encode_and_classify(self, texts: Sequence[str]) -> Any:
        import numpy as np
        import torch

        found = np.empty((len(texts), len(self.about["classes"])))
        # By length, so that little is padded; the longest first.
        order = np.argsort([-len(text) for text in texts], kind="stable")
        with torch.inference_mode():
            for start in range(0, len(texts), self._BATCH):
                rows = order[start : start + self._BATCH]
                tokens = self.tokenizer(
                    [texts[row] for row in rows.tolist()],
                    padding=True,
                    truncation=self.about["max_length"] is not None,
                    max_length=self.about["max_length"],
                    return_tensors="pt",
                ).to(self.encoder.device)
                vectors = self._pool(self.encoder(**tokens), tokens["attention_mask"])
                found[rows] = self.classify(vectors).cpu().numpy()
        return found

    def _pool(self, output: Any, mask: Any) -> Any:
        states, there = output.last_hidden_state.float(), mask[:, :, None]
        if self.about["pooling"] == "cls":
            vectors = states[:, 0]
        elif self.about["pooling"] == "mean":
            vectors = (states * there).sum(dim=1) / there.sum(dim=1)
        else:
            vectors = states.masked_fill(there == 0, float("-inf")).amax(dim=1)
        if self.about["normalize"]:
            vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return vectors

    def classify(self, vectors: Any) -> Any:
        """Return probabilities of shape (n, classes) of vectors of shape (n, d), as tensors."""
        from torch.nn.functional import linear

        part = {name: weights.to(vectors.device) for name, weights in self.head.items()}
        hidden = linear(vectors, part["hidden.weight"], part["hidden.bias"]).relu()
        return linear(hidden, part["output.weight"], part["output.bias"]).softmax(dim=-1)


mlflow.models.set_model(OccupationClassifier())
