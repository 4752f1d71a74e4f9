"""The command line: commands for runs of any kind, then those of each application."""

from metaprior.applications import applications
from metaprior.cli.application import app, main
from metaprior.cli.training import evaluate, plan, train

__all__ = ["app", "main"]

for command in (train, evaluate, plan):
    app.command()(command)
for application in applications():
    application.add_commands(app)
