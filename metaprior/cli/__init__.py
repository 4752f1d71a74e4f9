"""The command line, one file for a group of commands."""

from metaprior.cli.application import app, main
from metaprior.cli.solar import predict, report, simulate
from metaprior.cli.training import evaluate, plan, train

__all__ = ["app", "main"]

# `metaprior --help` lists commands in the order in which one comes to need them.
ORDER = (simulate, train, evaluate, predict, report, plan)
app.registered_commands.sort(key=lambda command: ORDER.index(command.callback))
