"""Models that take features: an encoder turns texts into vectors, or the data holds them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.checked import Bios, check_column
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid, missing_extra
from biasbios_mlflow.prediction.base import Variants, copies_of, text_variants
from biasbios_mlflow.prediction.identity import content_digest, identify, update_with_weights
from biasbios_mlflow.prediction.inputs import ModelInputs

if TYPE_CHECKING:
    from biasbios_mlflow.prediction.tokens import TokenModel

__all__ = ["TOKEN_OPTIONS", "Encoder", "FeatureColumns", "SentenceModel", "find_features"]

TOKEN_OPTIONS = frozenset({"device", "dtype", "token_budget"})
"""Options of the evaluation that a `biasbios_mlflow.prediction.tokens.TokenModel` heeds."""

Matrix = npt.NDArray[Any]

_BATCH = 4096
"""Texts in one call of a callable or of a model's predict."""

_URI_SCHEMES = ("models:/", "runs:/", "mlflow-artifacts:/", "file:/", "s3:/", "gs:/", "dbfs:/")


class FeatureColumns:
    """Features that stand in the data: one vector a cell.

    Parameters
    ----------
    column : str
    counterfactual_column : str, optional
        The vectors of the swapped bios; without it there are no counterfactual predictions.
    """

    name = "feature columns"
    options = frozenset({"features", "counterfactual_features"})

    def __init__(self, column: str, counterfactual_column: str | None = None) -> None:
        self._columns = [("features", column)]
        if counterfactual_column is not None:
            self._columns.append(("counterfactual_features", counterfactual_column))

    def session(self) -> AbstractContextManager[None]:
        """Do nothing: the vectors are there."""
        return nullcontext()

    def variants(self, bios: Bios, counterfactuals: Sequence[str]) -> Variants:
        """Return the vectors of n bios, then those of the counterfactuals that differ."""
        before, after = self.read(bios)
        changed = (
            np.zeros(len(bios), dtype=bool) if after is None else (before != after).any(axis=1)
        )
        inputs = ModelInputs.of(bios, bios.texts, changed)
        if after is None:
            inputs.features = before
            return Variants(inputs, None, None)
        inputs.features = np.concatenate([before, after[changed]])
        return Variants(inputs, copies_of(changed), changed)

    def fill(self, inputs: ModelInputs) -> ModelInputs:
        """Return the inputs, whose vectors are there already."""
        return inputs

    def read(self, bios: Bios) -> tuple[Matrix, Matrix | None]:
        """Return the matrices of shape (n, d) of n bios and of their counterfactuals.

        Raises
        ------
        MlflowException
            At a missing column, cells that are no vectors of one length, values not finite.
        """
        matrices = [_stack(bios, option, column) for option, column in self._columns]
        if len(matrices) == 1:
            return matrices[0], None
        if matrices[0].shape != matrices[1].shape:
            raise invalid(
                "counterfactual_features",
                found=f"vectors of length {matrices[1].shape[1]}",
                expected=f"{matrices[0].shape[1]}, as in features",
                fix="make both with the same encoder",
            )
        return matrices[0], matrices[1]


def _stack(bios: Bios, option: str, column: str) -> Matrix:
    check_column(option, column, bios.inputs.columns)
    try:
        matrix = np.array([np.asarray(cell) for cell in bios.inputs[column]])
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
            raise ValueError(f"shape {matrix.shape}, {matrix.dtype}")
    except ValueError as error:
        raise invalid(
            f"column {column!r}, rows {bios.rows[0]} to {bios.rows[-1]}",
            found="cells that are not vectors of numbers of one length",
            expected="one vector a bio",
            fix="store a list or array of numbers in each cell",
        ) from error
    return _checked(matrix, f"column {column!r}", bios.rows)


def _checked(matrix: Matrix, thing: str, rows: npt.NDArray[np.int64]) -> Matrix:
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        raise invalid(
            f"{thing}, row {rows[int(finite.argmin())]}",
            found="numbers that are not finite",
            expected="finite features",
            fix="mend the features of this bio",
        )
    return matrix


class Encoder:
    """Turns texts into vectors in batches.

    Parameters
    ----------
    name : str
        What it is, for the log.
    encode : callable
        From a list of n str to an array of shape (n, d).
    session : callable, optional
        Gives a context manager that keeps a model on its device.
    identity : str, optional
        Hash of its content; None where nothing tells it from others.
    options : frozenset of str, optional
        The options that it heeds.
    """

    def __init__(
        self,
        name: str,
        encode: Callable[[list[str]], Any],
        session: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        identity: str | None = None,
        options: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.identity = identity
        self.session = session
        self.options = options | {"encoder"}
        self._encode = encode

    def variants(self, bios: Bios, counterfactuals: Sequence[str]) -> Variants:
        """Return the texts of n bios, then those of the counterfactuals that differ."""
        return text_variants(bios, counterfactuals)

    def fill(self, inputs: ModelInputs) -> ModelInputs:
        """Give inputs the vectors of their texts, and return them.

        Raises
        ------
        MlflowException
            When the encoder does not return one vector of finite numbers a text.
        """
        if inputs.features is None:
            inputs.features, inputs.cut = self(inputs.texts, inputs.rows)
        return inputs

    def __call__(
        self, texts: Sequence[str], rows: npt.NDArray[np.int64]
    ) -> tuple[Matrix, npt.NDArray[np.bool_] | None]:
        """Encode n texts, whose rows in the data are given for messages.

        Returns
        -------
        matrix : ndarray of shape (n, d)
        cut : ndarray of bool of shape (n,) or None
            Which texts were cut, where that is known.

        Raises
        ------
        MlflowException
            When the encoder does not return one vector of finite numbers a text.
        """
        encoded = self._encode(list(texts))
        known = isinstance(encoded, _Encoded)
        cut: npt.NDArray[np.bool_] | None = encoded.cut if known else None
        matrix = _as_matrix(encoded.vectors if known else encoded)
        if matrix is None or matrix.shape[0] != len(texts):
            found = "no matrix of numbers" if matrix is None else f"shape {matrix.shape}"
            raise invalid(
                f"output of the encoder {self.name}",
                found=f"{found} for {len(texts)} texts",
                expected="one vector of numbers a text",
                fix="let the encoder return an array of shape (texts, features)",
            )
        return _checked(matrix, f"output of the encoder {self.name}", rows), cut


@dataclass(frozen=True, eq=False)
class _Encoded:
    """Vectors, and which texts were cut for them."""

    vectors: Matrix
    cut: npt.NDArray[np.bool_]


def find_features(config: EvaluationConfig) -> Encoder | FeatureColumns | None:
    """Choose where features come from; None for models that read text.

    Raises
    ------
    MlflowException
        When both an encoder and columns are named, or the encoder cannot be loaded.
    """
    if config.features is not None:
        if config.encoder is not None:
            raise invalid(
                "encoder",
                found="an encoder and feature columns",
                expected="one of them",
                fix="leave out encoder or features",
            )
        return FeatureColumns(config.features, config.counterfactual_features)
    encoder = config.encoder
    if encoder is None:
        if config.counterfactual_features is not None:
            raise invalid(
                "counterfactual_features",
                found="no column for the features of the bios themselves",
                expected="both",
                fix="set features too",
            )
        return None
    if callable(encoder):
        name = getattr(encoder, "__qualname__", type(encoder).__name__)
        identity = content_digest(encoder)
        return Encoder(name, lambda texts: _in_batches(encoder, texts), identity=identity)
    return _load_encoder(str(encoder), config)


def _load_encoder(name: str, config: EvaluationConfig) -> Encoder:
    if name.startswith(_URI_SCHEMES) or (Path(name) / "MLmodel").is_file():
        import mlflow.pyfunc

        model = mlflow.pyfunc.load_model(name)
        identity = identify(model, config.model_copy(update={"loaded_with": None})).model
        return Encoder(name, lambda texts: _in_batches(model.predict, texts), identity=identity)
    if importlib.util.find_spec("sentence_transformers") is not None and _is_sentence_model(name):
        library = importlib.import_module("sentence_transformers")
        device = None if config.device == "auto" else config.device
        sentences = library.SentenceTransformer(name, device=device)
        if config.max_length is not None:
            sentences.max_seq_length = config.max_length
        digest = hashlib.sha256(repr((sentences, sentences.max_seq_length)).encode())
        digest.update(repr(sorted(sentences.tokenizer.get_vocab().items())).encode())
        update_with_weights(digest, sentences)
        return Encoder(
            name,
            lambda texts: sentences.encode(texts, show_progress_bar=False),
            identity=digest.hexdigest(),
            options=frozenset({"device", "max_length"}),
        )
    return SentenceModel.load(name).encoder(config)


@dataclass(frozen=True, eq=False)
class SentenceModel:
    """A model of the Hugging Face kind that turns texts into vectors.

    Attributes
    ----------
    name : str
        What it was loaded from, for the log.
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    pooling : {"mean", "cls", "max"}
    normalize : bool
        Whether vectors are brought to length 1.
    max_length : int or None
        Tokens after which a text is cut, where its files say so.
    """

    name: str
    model: Any
    tokenizer: Any
    pooling: str = "mean"
    normalize: bool = False
    max_length: int | None = None

    @classmethod
    def load(cls, name: str) -> SentenceModel:
        """Load a model; it is pooled as its sentence-transformers files say.

        Parameters
        ----------
        name : str
            Name or path.

        Raises
        ------
        MlflowException
            When torch or transformers is not installed, or there is no such model.
        """
        for package in ("torch", "transformers"):
            if importlib.util.find_spec(package) is None:
                raise missing_extra(package, "transformers", needed_for=f"encoder {name!r}")
        from transformers import AutoModel, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModel.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise invalid(
                "encoder",
                found=f"{name!r} ({str(error).splitlines()[0]})",
                expected="a model URI, or a sentence-transformers or Hugging Face name or path",
                fix="check the name, or hand in a callable from texts to vectors",
            ) from error
        pooling, normalize, length = _sentence_settings(Path(name))
        return cls(name, model, tokenizer, pooling, normalize, length)

    def running(self, config: EvaluationConfig) -> TokenModel:
        """Return it ready to run over many texts."""
        from biasbios_mlflow.prediction.tokens import TokenModel

        return TokenModel(
            self.model,
            self.tokenizer,
            max_length=config.max_length or self.max_length,
            token_budget=config.token_budget,
            device=config.device,
            dtype=config.dtype,
        )

    def vectors(self, output: Any, mask: Any) -> Any:
        """Return a tensor with one vector a text, from the model's output and attention mask."""
        from biasbios_mlflow.prediction.tokens import pool

        pooled = pool(output, mask, self.pooling)
        if self.normalize:
            pooled = pooled / pooled.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return pooled

    def encoder(self, config: EvaluationConfig) -> Encoder:
        """Return it as an encoder."""
        running = self.running(config)

        def encode(texts: list[str]) -> _Encoded:
            matrix: Matrix | None = None
            tokens = running.tokenize(texts)
            for rows, part in running.run(tokens, self.vectors):
                if matrix is None:
                    matrix = np.empty((len(texts), part.shape[1]), dtype=np.float32)
                matrix[rows] = part
            assert matrix is not None
            return _Encoded(matrix, tokens.cut)

        name = f"{self.name} ({self.pooling} pooling) on {running.device}"
        return Encoder(
            name,
            encode,
            running.session,
            identity=self.digest(running.max_length),
            options=TOKEN_OPTIONS | {"max_length"},
        )

    def digest(self, max_length: int | None) -> str:
        """Return a hash of all that vectors depend on beside the texts, precision and packages.

        Parameters
        ----------
        max_length : int or None
            Tokens after which a text is cut.
        """
        settings = (self.pooling, self.normalize, max_length)
        digest = hashlib.sha256(repr(settings).encode())
        self.update(digest)
        return digest.hexdigest()

    def update(self, digest: Any) -> None:
        """Add configuration, vocabulary and weights to a hash."""
        shape = {k: v for k, v in self.model.config.to_dict().items() if k != "_name_or_path"}
        digest.update(json.dumps(shape, sort_keys=True, default=str).encode())
        digest.update(repr(sorted(self.tokenizer.get_vocab().items())).encode())
        update_with_weights(digest, self.model)


def _is_sentence_model(name: str) -> bool:
    path = Path(name)
    return (path / "modules.json").is_file() or not path.exists()


def _sentence_settings(path: Path) -> tuple[str, bool, int | None]:
    """Return pooling, normalization and length as sentence-transformers stores them."""
    if not (path / "modules.json").is_file():
        return "mean", False, None
    modules = json.loads((path / "modules.json").read_text())
    pooling, normalize = "mean", False
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            settings = json.loads((path / module["path"] / "config.json").read_text())
            chosen = [name for name in ("cls", "mean", "max") if _pools_by(settings, name)]
            if len(chosen) != 1:
                raise invalid(
                    "encoder",
                    found=f"another pooling in {path / module['path'] / 'config.json'}",
                    expected="mean, cls or max pooling",
                    fix="pip install sentence-transformers, which knows all kinds",
                )
            pooling = chosen[0]
        normalize = normalize or kind == "Normalize"
    about = path / "sentence_bert_config.json"
    length = json.loads(about.read_text()).get("max_seq_length") if about.is_file() else None
    return pooling, normalize, length


def _pools_by(settings: dict[str, Any], name: str) -> bool:
    key = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}[name]
    return bool(settings.get(f"pooling_mode_{key}")) or settings.get("pooling_mode") == name


def _in_batches(encode: Callable[[list[str]], Any], texts: list[str]) -> Matrix | None:
    parts = [
        _as_matrix(encode(texts[start : start + _BATCH])) for start in range(0, len(texts), _BATCH)
    ]
    matrices = [part for part in parts if part is not None]
    return np.concatenate(matrices) if matrices and len(matrices) == len(parts) else None


def _as_matrix(output: Any) -> Matrix | None:
    """Return a matrix of numbers, None where the output is none."""
    if hasattr(output, "detach"):  # a torch tensor, without importing torch
        output = output.detach().cpu().float().numpy()
    if hasattr(output, "toarray"):  # a sparse matrix
        output = output.toarray()
    if isinstance(output, pd.DataFrame) and output.shape[1] == 1:
        output = output.iloc[:, 0].tolist()
    try:
        matrix = np.asarray(output)
        if matrix.dtype == object:
            matrix = np.array([np.asarray(row, dtype=np.float64) for row in output])
    except (TypeError, ValueError):
        return None
    return matrix if matrix.ndim == 2 and matrix.dtype.kind in "fiu" else None
