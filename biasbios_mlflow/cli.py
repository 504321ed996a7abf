"""The command line: the same functions, for people and for CI.

Exit codes: 0 ok, 1 the gate failed, 2 could not run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, redirect_stdout
from typing import TYPE_CHECKING, Any, get_args

import click

from biasbios_mlflow import __version__
from biasbios_mlflow.config import EvaluationConfig

if TYPE_CHECKING:
    from mlflow.models import EvaluationResult

__all__ = ["main"]


class _Group(click.Group):
    """Turns user errors into one line on standard error and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return super().invoke(ctx)
        except MlflowException as error:
            click.echo(f"biasbios: {error.message}", err=True)
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="biasbios")
def main() -> None:
    """Audit occupation classifiers on Bias in Bios: accuracy and gender fairness, in MLflow.

    The tracking server is the one MLflow uses: set MLFLOW_TRACKING_URI.
    """


def _config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add one option for each option of the evaluator."""
    for name, field in reversed(EvaluationConfig.model_fields.items()):
        if name in {"model_uri", "gender_values"}:
            continue
        kinds: list[Any] = list(get_args(field.annotation) or (field.annotation,))
        settings: dict[str, Any] = {"default": None, "help": field.description}
        if field.annotation is bool:
            settings["is_flag"] = True
            command = click.option(f"--{_dashed(name)}/--no-{_dashed(name)}", name, **settings)(
                command
            )
            continue
        if all(isinstance(kind, str) for kind in kinds):
            settings["type"] = click.Choice(kinds)
        elif name == "label_names":
            settings.update(metavar="A,B,…", callback=_comma_separated)
        else:
            settings["type"] = next(k for k in kinds if k is not type(None))
        command = click.option(f"--{_dashed(name)}", name, **settings)(command)
    return command


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _comma_separated(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    return None if value is None else [part.strip() for part in value.split(",")]


@main.command()
@click.argument("model_uri")
@click.option("--data", default=None, help="'sample', or a csv, tsv, jsonl or parquet file.")
@click.option("--split", default=None, help="Which part of the data, e.g. test.")
@click.option(
    "--env-manager",
    default="local",
    type=click.Choice(["local", "virtualenv", "uv", "conda"]),
    help="Environment in which the model predicts.",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
@_config_options
def evaluate(
    model_uri: str,
    data: str | None,
    split: str | None,
    env_manager: str,
    as_json: bool,
    **config: Any,
) -> None:
    """Evaluate MODEL_URI and log the result to MLflow.

    Example: biasbios evaluate models:/occupations@champion --data test.csv
    """
    from biasbios_mlflow.api import evaluate as evaluate_model
    from biasbios_mlflow.api import resolve_model_uri
    from biasbios_mlflow.report.text import headline_table

    with _progress_on_stderr():
        uri, version = resolve_model_uri(model_uri)
        chosen = {name: value for name, value in config.items() if value is not None}
        result = evaluate_model(uri, data, split=split or None, env_manager=env_manager, **chosen)
    summary = _summary(result)
    if as_json:
        _print_json(
            {
                "model_uri": uri,
                "model_version": version,
                "run_id": result.run_id,
                "metrics": dict(result.metrics),
                "reasons": summary["scores"]["reasons"],
            }
        )
        return
    click.echo(f"Model  {uri}\nRun    {result.run_id}\n")
    click.echo(headline_table({"": summary}))
    click.echo(f"\n{_where_to_look(result.run_id)}")


@main.command()
@click.option("--data", default="sample", show_default=True, help="See evaluate.")
@click.option("--split", default="train", show_default=True, help="Which part of the data.")
@click.option(
    "--method",
    default="baseline",
    show_default=True,
    type=click.Choice(["baseline", "cda"]),
    help="cda adds every training bio once more, gender-swapped.",
)
@click.option("--scope", default="pronouns", show_default=True, help="Scope of that swap.")
@click.option("--seed", default=0, show_default=True, help="Seed of the classifier.")
@click.option("--register", default=None, help="Registered model to add a version to.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
def train(
    data: str, split: str, method: str, scope: str, seed: int, register: str | None, as_json: bool
) -> None:
    """Train a classifier (tf-idf and logistic regression) and log it to MLflow.

    Example: biasbios train --method cda --register occupations
    """
    from biasbios_mlflow.training import train as train_model

    with _progress_on_stderr():
        trained = train_model(
            data, split=split or None, method=method, scope=scope, seed=seed, register=register
        )
    if as_json:
        _print_json(vars(trained))
    else:
        click.echo(f"Model  {trained.model_uri}\nRun    {trained.run_id}")


@main.command()
@click.argument("texts", nargs=-1)
@click.option(
    "--scope",
    default="pronouns",
    show_default=True,
    type=click.Choice(["pronouns", "titles", "words", "names"]),
    help="Which gendered words are exchanged; each scope adds to the one before it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a text.")
def swap(texts: tuple[str, ...], scope: str, as_json: bool) -> None:
    """Print TEXTS with the other gender's words; without TEXTS, each line of standard input.

    Example: biasbios swap "Her students love her."
    """
    from biasbios_mlflow.counterfactual import swap_gender

    for text in texts or (line.rstrip("\n") for line in click.get_text_stream("stdin", "utf-8")):
        swapped = swap_gender(text, scope=scope)
        if as_json:
            click.echo(json.dumps({"text": text, "swapped": swapped}, ensure_ascii=False))
        else:
            click.echo(swapped)


@main.command()
@click.option(
    "--register",
    default="biasbios-demo",
    show_default=True,
    help="Registered model to which both versions are added.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the classifiers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
def demo(register: str, seed: int, as_json: bool) -> None:
    """Train two models on the embedded sample, register both, evaluate both, compare.

    Example: biasbios demo
    """
    import mlflow

    from biasbios_mlflow.api import evaluate as evaluate_model
    from biasbios_mlflow.bios.readers import load_bios
    from biasbios_mlflow.report.text import headline_table
    from biasbios_mlflow.training import METHODS
    from biasbios_mlflow.training import train as train_model

    results = {}
    with _progress_on_stderr(), mlflow.start_run(run_name="biasbios demo") as parent:
        test = load_bios("sample", split="test")
        for method in METHODS:
            trained = train_model("sample", method=method, seed=seed, register=register)
            with mlflow.start_run(run_name=f"evaluate {method}", nested=True):
                results[method] = (trained, evaluate_model(trained.model_uri, test))
    summaries = {method: _summary(result) for method, (_, result) in results.items()}
    if as_json:
        _print_json(
            {
                method: {
                    "model_uri": trained.model_uri,
                    "model_version": trained.model_version,
                    "run_id": result.run_id,
                    "metrics": dict(result.metrics),
                    "reasons": summaries[method]["scores"]["reasons"],
                }
                for method, (trained, result) in results.items()
            }
        )
        return
    click.echo("The embedded sample: invented bios, figures for this sample only.\n")
    click.echo(headline_table(summaries))
    for method, (trained, _) in results.items():
        click.echo(f"{method:<9} {trained.model_uri}")
    click.echo(f"\n{_where_to_look(parent.info.run_id)}")


def _progress_on_stderr() -> AbstractContextManager[Any]:
    """Keep standard output for the answer: MLflow prints links to runs there."""
    return redirect_stdout(sys.stderr)


def _summary(result: EvaluationResult) -> Mapping[str, Any]:
    content: Mapping[str, Any] = result.artifacts["biasbios/summary"].content
    return content


def _print_json(content: Mapping[str, Any]) -> None:
    click.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def _where_to_look(run_id: str) -> str:
    import mlflow

    tracking = mlflow.get_tracking_uri()
    run = mlflow.get_run(run_id)
    page = f"#/experiments/{run.info.experiment_id}/runs/{run_id}"
    if tracking.startswith("http"):
        return f"Look at it: {tracking.rstrip('/')}/{page}"
    return (
        f"Look at it: mlflow server --backend-store-uri {tracking} --port 5000\n"
        f"then open   http://127.0.0.1:5000/{page}"
    )


if __name__ == "__main__":
    main()
