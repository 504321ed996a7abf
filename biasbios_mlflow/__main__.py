"""``python -m biasbios_mlflow``: the command line without the console script."""

from biasbios_mlflow.cli import main

main(prog_name="biasbios")
