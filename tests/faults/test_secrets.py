"""Secrets planted wherever a user can put one, and searched for wherever they could come out."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mlflow.exceptions import MlflowException

import biasbios_mlflow
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.guarding.process import run_gate
from biasbios_mlflow.guarding.state import State
from biasbios_mlflow.redaction import clean_error, redacted, redacted_content, redacted_uri
from tests.faults.conftest import make_versions
from tests.faults.test_web import WebServer, gives
from tests.gating.conftest import alias, tags
from tests.program import call_program

# Each in its place, so that a leak says where from.
SECRETS = {
    "password": "pAssw0rd-one",
    "signature": "5ignature-two",
    "token": "t0ken-three",
    "environment": "env1ronment-four",
    "model_config": "c0nfig-five",
    "tracking": "tr4cking-six",
    "encoder": "enc0der-seven",
}


def leaks(text: str) -> list[str]:
    return [place for place, secret in SECRETS.items() if secret in text]


@pytest.fixture
def web(few_csv: Path) -> Iterator[WebServer]:
    server = WebServer()
    server.answers["/bios.csv"] = gives(few_csv.read_bytes())
    yield server
    server.close()


@pytest.fixture
def data_url(web: WebServer) -> str:
    query = f"X-Amz-Signature={SECRETS['signature']}&token={SECRETS['token']}"
    return f"http://ann:{SECRETS['password']}@{web.host}/bios.csv?{query}"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that this package and MLflow log, as a handler of the user's writes it down."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


def everything_in(run_id: str, folder: Path) -> str:
    """All that the server has of a run: tags, parameters, inputs, every file."""
    client = mlflow.MlflowClient()
    run = client.get_run(run_id)
    found = [json.dumps(run.to_dictionary(), default=str)]
    found += [str(entry.dataset.to_dictionary()) for entry in run.inputs.dataset_inputs]
    path = client.download_artifacts(run_id, "", str(folder))
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    assert len(files) > 5
    return "\n".join([*found, *(file.read_bytes().decode("latin-1") for file in files)])


def everything_of(name: str) -> str:
    """All that the registry has of a model."""
    client = mlflow.MlflowClient()
    versions = client.search_model_versions(f"name='{name}'")
    return "\n".join([str(dict(client.get_registered_model(name))), *map(str, map(dict, versions))])


def test_a_gate(
    mlflow_server: str,
    source: str,
    data_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: io.StringIO,
) -> None:
    monkeypatch.setenv("BIASBIOS_TEST_API_KEY", SECRETS["environment"])
    make_versions(source, "secretive")
    policy = tmp_path / "gate.yaml"
    content = {
        "rules": [{"metric": "balanced_accuracy", "min": 0.1, "bound": "point"}],
        "evaluation": {
            "data": data_url,
            "n_replicates": 100,
            "model_config": {"openai_api_key": SECRETS["model_config"]},
        },
        "promote": "champion",
    }
    policy.write_text(yaml.safe_dump(content))
    host = mlflow_server.removeprefix("http://")
    mlflow.set_tracking_uri(f"http://ann:{SECRETS['tracking']}@{host}")
    try:
        done = call_program("gate", "models:/secretive/2", "--policy", str(policy))
    finally:
        mlflow.set_tracking_uri(mlflow_server)
    assert done.returncode == 0, done.stderr
    run_id = json.loads(tags("secretive", "2")["evidence"])["run_id"]
    kept = everything_in(run_id, tmp_path / "run")
    assert "X-Amz-Signature=***" in kept  # where the data came from is told all the same
    for text in (kept, everything_of("secretive"), done.stdout, done.stderr, log.getvalue()):
        assert leaks(text) == []
    assert alias("secretive") == "2"


@pytest.mark.parametrize("broken", ["data", "columns", "model_config", "model"])
def test_a_gate_that_cannot_run(
    broken: str,
    mlflow_server: str,
    source: str,
    web: WebServer,
    data_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: io.StringIO,
) -> None:
    monkeypatch.setenv("BIASBIOS_TEST_API_KEY", SECRETS["environment"])
    name = f"secretive-{broken}"
    make_versions(source, name)
    if broken == "data":
        del web.answers["/bios.csv"]
    if broken == "columns":
        web.answers["/bios.csv"] = gives(b"a,b\n1,2\n")
    if broken == "model":
        spoken = f"cannot sign in at {data_url} with {SECRETS['environment']}"

        def broken_predict(*arguments: Any, **options: Any) -> Any:
            raise RuntimeError(spoken)

        monkeypatch.setattr(
            "sklearn.feature_extraction.text.TfidfVectorizer.transform", broken_predict
        )
    given = SECRETS["model_config"]
    evaluation = {
        "data": data_url,
        "model_config": f"api_key={given}" if broken == "model_config" else {"api_key": given},
    }
    policy = tmp_path / "gate.yaml"
    rules = [{"metric": "balanced_accuracy", "min": 0.1}]
    policy.write_text(yaml.safe_dump({"rules": rules, "evaluation": evaluation}))
    done = call_program("gate", f"models:/{name}/2", "--policy", str(policy))
    assert done.returncode == 2, done.stdout
    for text in (done.stdout, done.stderr, everything_of(name), log.getvalue()):
        assert leaks(text) == []
    if broken != "model_config":  # which is refused before any version is looked at
        assert tags(name, "2")["verdict"] == "error"
    with pytest.raises(Exception, match=r"\w") as error:
        biasbios_mlflow.gate(f"models:/{name}/2", None, str(policy))
    assert leaks(str(error.value) + str(error.value.__cause__) + str(error.value.args)) == []


def test_an_evaluation_with_an_encoder_and_a_model_at_an_address(
    mlflow_server: str, few_csv: Path, tmp_path: Path, run: Any
) -> None:
    def encode(texts: list[str]) -> np.ndarray:
        return np.array([[len(text), text.count(" ")] for text in texts], dtype=float)

    encode.__qualname__ = f"https://ann:{SECRETS['encoder']}@example.org/encoder"

    def predict(vectors: Any) -> list[str]:
        return ["nurse" if row[0] % 2 else "poet" for row in np.asarray(vectors)]

    result = biasbios_mlflow.evaluate(
        predict,
        pd.read_csv(few_csv),
        encoder=encode,
        model_uri=f"s3://key:{SECRETS['password']}@models/occupations",
        n_replicates=100,
    )
    kept = everything_in(result.run_id, tmp_path / "run")
    assert "s3://***@models/occupations" in kept
    assert leaks(kept) == []
    assert leaks(str(result.artifacts["biasbios/summary"].content)) == []


def test_what_the_guard_keeps_and_hands_on(tmp_path: Path) -> None:
    url = f"https://ann:{SECRETS['password']}@example.org/bios.csv"
    state = State(tmp_path / "guard.db")
    assert state.request("occupations", "3")
    gate = state.begin("occupations")
    assert gate is not None
    state.end(gate, "error", f"cannot fetch {url}")
    state.tell("occupations", f"cannot fetch {url}")
    shown = json.dumps([state.gates("occupations", "done"), state.told("occupations")])
    state.close()
    assert "example.org" in shown
    files = "".join(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())
    assert leaks(shown + files) == []

    lines: list[str] = []
    ended = run_gate(
        [
            "sh",
            "-c",
            'read line; echo "$line" >&2; echo "$0" "$line" | wc -c; cat /proc/$$/cmdline',
        ],
        {"data": url},
        environment=os.environ,
        timeout=30,
        must_stop=lambda: False,
        on_line=lines.append,
    )
    assert leaks(ended.last_words + "".join(lines)) == []
    assert int(lines[1]) > 2 * len(url) - 20  # the process itself is told


# The function itself, on what nobody chose.

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.~!$'()*+,;@:/?#%ü", min_size=8, max_size=20)
plain = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)


@given(password=words, user=plain, host=plain, path=plain, scheme=st.sampled_from(["https", "s3"]))
def test_no_password_in_any_uri(
    password: str, user: str, host: str, path: str, scheme: str
) -> None:
    from urllib.parse import quote

    marked = f"Q{quote(password, safe='')}Q"
    uri = f"{scheme}://{user}:{marked}@{host}.org/{path}.csv?sig={marked}&version=2"
    for text in (uri, f"found {uri!r}, expected", f"<{uri}>", f"{uri} {uri}"):
        clean = redacted(text)
        assert marked not in clean
        assert redacted_uri(text) == redacted_uri(redacted_uri(text))
        assert f"@{host}.org/{path}.csv" in clean
        assert "version=2" in clean
        assert redacted(clean) == clean
    assert marked not in str(invalid("data", found=uri, expected="x", fix="y").message)
    assert marked not in json.dumps(redacted_content({"a": [uri, {"b": (uri,)}]}))


@given(password=words.filter(lambda word: "@" not in word and len(set(word)) > 3))
def test_a_password_of_the_given_uri_is_found_in_any_form(password: str) -> None:
    from urllib.parse import quote

    marked = f"Q{password}Q"
    uri = f"https://ann:{quote(marked, safe='')}@example.org/x.csv"
    error = MlflowException(f"user 'ann', password {marked!r} and {quote(marked, safe='')}")
    clean_error(error, uri)
    assert repr(marked)[1:-1] not in str(error.args) or "'" in marked
    assert quote(marked, safe="") not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "models:/occupations@champion",
        "runs:/0f5c/model",
        "abfss://bios@acme.dfs.core.windows.net/test.csv",
        "https://example.org/bios.csv?version=2&format=csv",
        "tpr_gap/nurse abs_max 0.4 (ci): 0.41",
        "evaluator_config.token_budget: found 0, expected at least 1",
        "column 'author' of https://example.org:8080/a@b.csv",
        "the biography of the secretary: she typed",
        "max_tokens=3, passes: 2, design=old",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text
