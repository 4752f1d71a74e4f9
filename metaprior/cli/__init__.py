"""The command line, one file for a group of commands."""

from metaprior.cli.application import app, main
from metaprior.cli.benchmarks import Bench, bench
from metaprior.cli.first_look import demo
from metaprior.cli.solar import predict, report, simulate
from metaprior.cli.training import evaluate, plan, train

__all__ = ["Bench", "app", "main"]

# `metaprior --help` lists commands in the order in which one comes to need them.
ORDER = (demo, simulate, train, evaluate, predict, report, plan, bench)
app.registered_commands.sort(key=lambda command: ORDER.index(command.callback))
