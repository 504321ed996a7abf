"""The command line: the same functions, for people and for CI.

Exit codes: 0 ok, 1 the gate failed (or its evidence does not hold), 2 could not run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, get_args

import click

from biasbios_mlflow import __version__
from biasbios_mlflow.calls import EndedBySignal, unwinding_at_signals
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.guarding.command import guard
from biasbios_mlflow.redaction import redacted, redacted_uri

if TYPE_CHECKING:
    from mlflow.models import EvaluationResult

_DEMO_POLICY = {
    "rules": [
        {"metric": "balanced_accuracy", "min": 0.7, "no_worse_than_champion": {"margin": 0.02}},
        {"metric": "ctf", "no_worse_than_champion": {"margin": 0.0}},
        {"metric": "prediction_consistency", "no_worse_than_champion": {"margin": 0.0}},
        {"metric": "gap_rms", "no_worse_than_champion": {"margin": 0.02}},
    ],
    "champion": "champion",
    "promote": "champion",
    "first_champion": "allow",
}

__all__ = ["main"]


class _Group(click.Group):
    """Exits with 2 whenever a command could not run: 1 is kept for a gate that failed.

    A user error is one line on standard error; anything else keeps its traceback.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except EndedBySignal as ended:  # click would exit with 1, which is a gate's failure
            click.echo(f"biasbios: ended by {ended}", err=True)
        except Exception as error:
            # Only now: a command that needs nothing of MLflow must not wait for it.
            from mlflow.exceptions import MlflowException

            if isinstance(error, MlflowException):
                click.echo(f"biasbios: {redacted(error.message)}", err=True)
            else:
                click.echo(redacted(traceback.format_exc()).rstrip(), err=True)
        return ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="biasbios")
def main() -> None:
    """Audit occupation classifiers on Bias in Bios: accuracy and gender fairness, in MLflow.

    The tracking server is the one MLflow uses: set MLFLOW_TRACKING_URI.
    """
    context = click.get_current_context()
    if context.invoked_subcommand != "guard":  # which finishes its gates first
        context.with_resource(unwinding_at_signals())
    if not sys.stderr.isatty():  # bars of MLflow that nobody watches
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")


main.add_command(guard)


def _gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the evaluator's options; those that a policy must pin are not listed, and refused."""
    return _config_options(command, hide_bearing=True)


def _config_options(
    command: Callable[..., Any], *, hide_bearing: bool = False
) -> Callable[..., Any]:
    """Add one option for each option of the evaluator."""
    for name, field in reversed(EvaluationConfig.model_fields.items()):
        if name in {"loaded_with", "model_uri"}:
            continue
        kinds: list[Any] = list(get_args(field.annotation) or (field.annotation,))
        settings: dict[str, Any] = {"default": None, "help": field.description}
        settings["hidden"] = hide_bearing and EvaluationConfig.bears_on(name) != "nothing"
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
        elif name == "gender_values":
            settings.update(metavar="V=male,W=female,X=", callback=_gender_values)
            settings["help"] += ", as in 1=male,2=female,0="
        else:
            settings["type"] = next(k for k in kinds if k is not type(None))
        command = click.option(f"--{_dashed(name)}", name, **settings)(command)
    return command


_SOURCES = (
    "'sample', a csv, tsv, jsonl, parquet or pickle file (or .gz), a folder of them, hub:NAME, or "
    "the URI of such an artifact."
)


def _data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which part of the data."""
    for option in (
        click.option(
            "--sample", default=None, type=int, help="Draw so many bios by gender and job."
        ),
        click.option("--split", default=None, help="Which part of the data, e.g. test."),
    ):
        command = option(command)
    return command


def _reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a table of bios is read."""
    from biasbios_mlflow.bios.options import READING_OPTIONS

    callbacks = {"label_names": _comma_separated, "gender_values": _gender_values}
    metavars = {"label_names": "A,B,…", "gender_values": "V=male,W=female,X="}
    for name in reversed(READING_OPTIONS):
        command = click.option(
            f"--{_dashed(name)}",
            name,
            default=None,
            metavar=metavars.get(name),
            callback=callbacks.get(name),
            help=EvaluationConfig.model_fields[name].description,
        )(command)
    return command


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _comma_separated(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    return None if value is None else [part.strip() for part in value.split(",")]


def _gender_values(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Read ``1=male,2=female,0=``: nothing after the sign leaves those bios out."""
    if value is None:
        return None
    meaning: dict[str, str | None] = {}
    for part in value.split(","):
        name, sign, gender = (piece.strip() for piece in part.rpartition("="))
        if not sign or gender.lower() not in ("male", "female", ""):
            raise click.BadParameter(
                f"{part!r} is not VALUE=male, VALUE=female or VALUE= (left out)", ctx, param
            )
        meaning[name] = gender.lower() or None
    return meaning


@main.command()
@click.argument("model_uri")
@click.option("--data", default=None, metavar="SOURCE", help=_SOURCES)
@_data_options
@click.option(
    "--env-manager",
    default="local",
    type=click.Choice(["local", "virtualenv", "uv", "conda"]),
    help="Environment in which the model predicts.",
    show_default=True,
)
@click.option(
    "--engine",
    default="local",
    type=click.Choice(["local", "spark"]),
    help="Where bios are read and predicted.",
    show_default=True,
)
@click.option(
    "--output",
    default=None,
    metavar="FOLDER",
    help="With --engine spark: where executors write a row a bio and a row a flip.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Of a language model (openai:/, transformers:/): count questions and tokens, ask nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
@_config_options
def evaluate(
    model_uri: str,
    data: str | None,
    split: str | None,
    env_manager: str,
    engine: str,
    output: str | None,
    dry_run: bool,
    as_json: bool,
    **config: Any,
) -> None:
    """Evaluate MODEL_URI and log the result to MLflow.

    Example: biasbios evaluate models:/occupations@champion --data test.csv
    """
    from biasbios_mlflow.api import evaluate as evaluate_model
    from biasbios_mlflow.api import resolve_model_uri
    from biasbios_mlflow.report.text import gaps_table, headline_table

    chosen = {name: value for name, value in config.items() if value is not None}
    if dry_run:
        _count_questions(model_uri, data, split or None, as_json, chosen)
        return
    with _progress_on_stderr():
        uri, version = resolve_model_uri(model_uri)
        if engine == "spark":
            result = _evaluate_with_spark(uri, data, split or None, env_manager, output, chosen)
        elif output is not None:
            raise click.UsageError("--output is for --engine spark")
        else:
            result = evaluate_model(
                uri, data, split=split or None, env_manager=env_manager, **chosen
            )
    summary = _summary(result)
    if as_json:
        _print_json(
            {
                "model_uri": redacted_uri(uri),
                "model_version": version,
                "run_id": result.run_id,
                "metrics": dict(result.metrics),
                "reasons": summary["scores"]["reasons"],
            }
        )
        return
    click.echo(f"Model  {redacted_uri(uri)}\nRun    {result.run_id}\n")
    click.echo(headline_table({"": summary}))
    click.echo(f"\n{gaps_table(summary)}")
    click.echo(f"\n{_where_to_look(result.run_id)}")


def _count_questions(
    uri: str, data: str | None, split: str | None, as_json: bool, config: dict[str, Any]
) -> None:
    from biasbios_mlflow.cost import count_questions

    with _progress_on_stderr():
        found = count_questions(uri, data or "sample", split=split, **config)
    if as_json:
        _print_json(found)
    else:
        click.echo(
            f"{found['questions']:,} questions about {found['bios']:,} bios, "
            f"{found['tokens_in']:,} tokens in ({found['counted_with']}). Nothing was asked."
        )


def _evaluate_with_spark(
    uri: str,
    data: str | None,
    split: str | None,
    env_manager: str,
    output: str | None,
    config: dict[str, Any],
) -> EvaluationResult:
    from biasbios_mlflow.spark import evaluate as evaluate_with_spark

    if data is None:
        raise click.UsageError("--engine spark needs --data, e.g. a folder of parquet files")
    if env_manager != "local":
        raise click.UsageError("--engine spark predicts in the executors' own environment")
    if config.pop("sample", None) is not None:
        raise click.UsageError("--sample is for --engine local; draw the bios with Spark")
    return evaluate_with_spark(uri, data, split=split, output=output, **config)


@main.command(context_settings={"show_default": True})
@click.argument("model_uri", required=False)
@click.option("--data", default=None, metavar="SOURCE", help=_SOURCES)
@_data_options
@click.option("--policy", default=None, help="YAML file with the rules.")
@click.option("--champion", default=None, help="Alias to compare with, instead of the policy's.")
@click.option("--promote", default=None, help="Alias to move, instead of the policy's.")
@click.option("--dry-run", is_flag=True, help="Decide only: no tag, no alias.")
@click.option(
    "--rollback", metavar="ALIAS", default=None, help="Put ALIAS back to the version before."
)
@click.option("--schema", is_flag=True, help="Print the JSON schema of a policy.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
@click.option("--junit", default=None, metavar="FILE", help="Write JUnit XML, one case a rule.")
@click.option("--summary", default=None, metavar="FILE", help="Append Markdown, for a CI summary.")
@click.option("--env-manager", default=None, hidden=True)  # the policy says it
@_gate_options
@click.pass_context
def gate(
    ctx: click.Context,
    /,
    model_uri: str | None,
    data: str | None,
    split: str | None,
    policy: str | None,
    champion: str | None,
    promote: str | None,
    dry_run: bool,
    rollback: str | None,
    schema: bool,
    as_json: bool,
    junit: str | None,
    summary: str | None,
    **config: Any,
) -> None:
    """Evaluate the registered MODEL_URI, hold it against a policy, promote it if it passes.

    What bears on the numbers stands in the policy, under evaluation.

    Exit code 0: passed. 1: failed. 2: could not run; no alias moved.

    Example: biasbios gate models:/occupations@candidate --data bios.csv --policy gate.yaml
    """
    from mlflow.exceptions import MlflowException

    from biasbios_mlflow.gating import flow, reports
    from biasbios_mlflow.gating.policy import GatePolicy

    if schema:
        _print_json(GatePolicy.model_json_schema())
        return
    if model_uri is None:
        raise click.UsageError("MODEL_URI is missing, e.g. models:/occupations/2")
    if rollback is not None:
        name = _registered_name(model_uri)
        current, previous = flow.rollback(name, rollback)
        click.echo(f"{name}: {rollback} is back from version {current} to version {previous}")
        return
    if policy is None:
        raise click.UsageError("--policy is missing, e.g. --policy gate.yaml")
    _check_writable({"--junit": junit, "--summary": summary})
    with _progress_on_stderr():
        result = flow.gate(
            model_uri,
            data,
            policy,
            split=split or None,
            champion=champion,
            promote=promote,
            dry_run=dry_run,
            **{name: value for name, value in config.items() if value is not None},
        )
    if junit is not None:
        _write_report("--junit", junit, "w", reports.junit(result))
    if summary is not None:
        _write_report("--summary", summary, "a", reports.markdown(result))
    if as_json:
        _print_json(result.to_dict())
    else:
        click.echo(reports.table(result))
        with contextlib.suppress(MlflowException):  # the server may be gone; the verdict stands
            click.echo(f"\n{_where_to_look(result.run_id)}")
    ctx.exit(0 if result.passed else 1)


@main.command()
@click.argument("name")
@click.option(
    "--require",
    metavar="ALIAS",
    multiple=True,
    help="Exit with 1 unless ALIAS points at a version that passed, by evidence that holds.",
)
@click.option("--policy", default=None, help="YAML file of the policy that it must have passed.")
@click.option("--figure", default=None, metavar="FILE", help="Draw the metrics over the versions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
@click.pass_context
def status(
    ctx: click.Context,
    /,
    name: str,
    require: tuple[str, ...],
    policy: str | None,
    figure: str | None,
    as_json: bool,
) -> None:
    """Print every version of the registered model NAME, and whether the evidence behind it holds.

    Exit code 1: an alias of --require points at a version without passing evidence.

    Example: biasbios status occupations --require champion
    """
    from biasbios_mlflow.gating.policy import GatePolicy
    from biasbios_mlflow.gating.status import model_status

    _check_writable({"--figure": figure})
    expected = None if policy is None else GatePolicy.parse(policy).sha256()
    with _progress_on_stderr():
        found = model_status(_registered_name(name))
    wrong = {alias: found.why_not(alias, policy_sha256=expected) for alias in require}
    if figure is not None:
        _save_figure(found.figure(), figure)
    if as_json:
        required = {alias: {"holds": why is None, "why_not": why} for alias, why in wrong.items()}
        _print_json({**found.to_dict(), "required": required})
    else:
        click.echo(str(found))
    for why in wrong.values():
        if why is not None:
            click.echo(f"biasbios: {why}", err=True)
    ctx.exit(1 if any(wrong.values()) else 0)


@main.command(context_settings={"show_default": True})
@click.argument("run_a")
@click.argument("run_b")
@click.option("--figure", default=None, metavar="FILE", help="Write a figure: png, svg or pdf.")
@click.option("--confidence", default=0.95, help="Level of the intervals.")
@click.option("--n-replicates", default=10_000, help="Replicates behind the intervals.")
@click.option("--seed", default=0, help="Seed of the replicates.")
@click.option(
    "--allow-different", is_flag=True, help="Compare even if more than the model differs."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
def compare(
    run_a: str,
    run_b: str,
    figure: str | None,
    confidence: float,
    n_replicates: int,
    seed: int,
    allow_different: bool,
    as_json: bool,
) -> None:
    """Compare the evaluations of the same bios in RUN_A and RUN_B, pair by pair.

    Each is the id of a run; <id>/<folder> names one of several evaluations in it.

    Example: biasbios compare 0f5c… 9ab1… --figure comparison.png
    """
    from biasbios_mlflow.runs import compare_runs

    with _progress_on_stderr():
        found = compare_runs(
            run_a,
            run_b,
            confidence=confidence,
            n_replicates=n_replicates,
            seed=seed,
            allow_different=allow_different,
        )
    if figure is not None:
        _save_figure(found.figure(), figure)
    if as_json:
        _print_json({"a": found.names[0], "b": found.names[1], **found.comparison.to_dict()})
        return
    click.echo(f"a  {found.names[0]}\nb  {found.names[1]}\n\n{found.comparison}")


def _methods() -> list[str]:
    from biasbios_mlflow.training.methods import METHODS

    return list(METHODS)


def _training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that training one model and comparing many have in common."""
    from biasbios_mlflow.training.methods import Settings

    for name, field in reversed(Settings.model_fields.items()):
        command = click.option(
            f"--{_dashed(name)}",
            name,
            type=field.annotation,
            default=None,
            help=f"{field.description}.",
        )(command)
    options = [
        click.option("--data", default="sample", show_default=True, help="As for evaluate."),
        click.option("--split", default="train", show_default=True, help="Part that is learned."),
        click.option(
            "--features",
            default="tfidf",
            show_default=True,
            help="'tfidf', or name or path of an encoder (sentence-transformers, Hugging Face).",
        ),
        click.option("--scope", default="pronouns", show_default=True, help="Scope of the swap."),
        click.option(
            "--cache",
            default=None,
            help="Folder for the encoder's vectors, by default one of the user's; '' keeps none.",
        ),
        click.option("--device", default="auto", show_default=True, help="Where the encoder runs."),
    ]
    command = _reading_options(command)
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@_training_options
@click.option(
    "--method",
    default="baseline",
    show_default=True,
    type=click.Choice(_methods()),
    help="What is done about gender; only baseline and cda on tfidf.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the classifier.")
@click.option("--register", default=None, help="Registered model to add a version to.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
def train(
    data: str,
    split: str,
    method: str,
    features: str,
    seed: int,
    register: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a classifier and log it to MLflow: a model from text to probabilities.

    On tfidf a logistic regression, on an encoder's features a network with one hidden layer.

    Example: biasbios train --method cda --register occupations
    """
    from biasbios_mlflow.training import train as train_model

    with _progress_on_stderr():
        trained = train_model(
            data,
            split=split or None,
            method=method,
            features=features,
            seed=seed,
            register=register,
            **{name: value for name, value in options.items() if value is not None},
        )
    if as_json:
        _print_json(vars(trained))
    else:
        click.echo(f"Model  {trained.model_uri}\nRun    {trained.run_id}")


@main.command()
@_training_options
@click.option("--test-data", default=None, help="Bios to evaluate on, by default --data.")
@click.option("--test-split", default="test", show_default=True, help="Part that is evaluated on.")
@click.option(
    "--methods",
    metavar="A,B,…",
    callback=_comma_separated,
    default=None,
    help="By default baseline,cda on tfidf, baseline,cda,clp,sensei on an encoder's features.",
)
@click.option("--seeds", default=5, show_default=True, help="How many: 0, 1, 2, …")
@click.option("--log-models", is_flag=True, help="Log each model, with a copy of the encoder.")
@click.option("--n-replicates", type=int, default=None, help="Replicates behind the intervals.")
@click.option("--min-cell", type=int, default=None, help="See evaluate.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
@click.pass_context
def benchmark(
    ctx: click.Context,
    /,
    data: str,
    split: str,
    test_data: str | None,
    test_split: str,
    methods: list[str] | None,
    n_replicates: int | None,
    min_cell: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train and evaluate each method by several seeds, and compare them with the baseline.

    Nested runs of one run, which gets the tables and a figure. What an interrupted benchmark has
    finished is not run again. Exit code 2 if a method and seed failed; the others are in the
    tables all the same.

    Example: biasbios benchmark --methods baseline,cda --seeds 5
    """
    from biasbios_mlflow.training import benchmark as run_benchmark

    evaluation = {"n_replicates": n_replicates, "min_cell": min_cell}
    with _progress_on_stderr():
        result = run_benchmark(
            data,
            split=split or None,
            test_data=test_data,
            test_split=test_split or None,
            methods=[name for name in methods or [] if name] or None,
            evaluation={name: value for name, value in evaluation.items() if value is not None},
            **{name: value for name, value in options.items() if value is not None},
        )
    if as_json:
        _print_json(result.to_dict())
    else:
        click.echo(f"{result}\n\n{_where_to_look(result.run_id)}")
    ctx.exit(2 if len(result.failed) else 0)


@main.command()
@click.argument("source")
@_data_options
@click.option("--seed", default=0, show_default=True, help="Seed of that draw.")
@click.option(
    "--scope",
    default="pronouns",
    show_default=True,
    type=click.Choice(["pronouns", "titles", "words", "names"]),
    help="Which gendered words count.",
)
@_reading_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
def data(source: str, as_json: bool, **options: Any) -> None:
    """Print what is in SOURCE and what is wrong with it, before any model sees it.

    Example: biasbios data bios.csv
    """
    from biasbios_mlflow.data_report import examine_data

    with _progress_on_stderr():
        report = examine_data(source, **options)
    if as_json:
        _print_json(report.to_dict())
    else:
        click.echo(str(report))


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

    lines: Iterable[str] = texts
    if not texts:
        lines = (line.rstrip("\n") for line in click.open_file("-", encoding="utf-8"))
    for text in lines:
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
    """Train two models on the embedded sample, register, evaluate and gate both.

    The plain model becomes the first champion; the counterfactually augmented one must be no worse.

    Example: biasbios demo
    """
    import mlflow

    from biasbios_mlflow.bios.readers import load_bios
    from biasbios_mlflow.gating import flow, promotion, reports
    from biasbios_mlflow.report.text import headline_table
    from biasbios_mlflow.training import train as train_model

    results: dict[str, flow.GateResult] = {}
    with _progress_on_stderr(), mlflow.start_run(run_name="biasbios demo") as parent:
        test = load_bios("sample", split="test")
        for method in ("baseline", "cda"):
            trained = train_model("sample", method=method, seed=seed, register=register)
            if not results:
                promotion.remove_alias(mlflow.MlflowClient(), register, "champion")
            results[method] = flow.gate(trained.model_uri, test, _DEMO_POLICY)
    if as_json:
        _print_json({method: result.to_dict() for method, result in results.items()})
        return
    click.echo("The embedded sample: invented bios, figures for this sample only.\n")
    click.echo(
        headline_table({method: _summary(result.evaluation) for method, result in results.items()})
    )
    for method, result in results.items():
        click.echo(f"{method:<9} {result.model_uri}")
    click.echo(f"\n{reports.table(result)}")
    click.echo(f"\n{_where_to_look(parent.info.run_id)}")


def _progress_on_stderr() -> AbstractContextManager[Any]:
    """Keep standard output for the answer: MLflow prints links to runs there."""
    return redirect_stdout(_WithoutSecrets(sys.stderr))


class _WithoutSecrets(io.TextIOBase):
    """Passes on what is printed, without secrets: MLflow prints the tracking URI as it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True


def _check_writable(files: Mapping[str, str | None]) -> None:
    """Raise where a file cannot be written, before anything is evaluated."""
    for option, path in files.items():
        if path is None:
            continue
        new = not Path(path).exists()
        try:
            with Path(path).open("a"):
                pass
            if new:
                Path(path).unlink()
        except OSError as error:
            raise click.BadParameter(f"{path}: {error.strerror}", param_hint=option) from error


def _write_report(option: str, path: str, mode: str, text: str) -> None:
    """Write a file about a gate that is over: what fails is a warning."""
    try:
        with Path(path).open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        click.echo(f"biasbios: warning: {option} {path}: {error.strerror}", err=True)


def _save_figure(figure: Any, path: str) -> None:
    try:
        figure.savefig(path)
    except (ValueError, OSError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--figure") from error


def _registered_name(model_uri: str) -> str:
    """Return the name of the registered model, given alone or in a URI."""
    return model_uri.removeprefix("models:/").split("/")[0].split("@")[0]


def _summary(result: EvaluationResult) -> Mapping[str, Any]:
    content: Mapping[str, Any] = result.artifacts["biasbios/summary"].content
    return content


def _print_json(content: Mapping[str, Any]) -> None:
    click.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def _where_to_look(run_id: str) -> str:
    import mlflow

    tracking = redacted_uri(mlflow.get_tracking_uri())
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
