"""The command line: commands for runs on any kind of tasks, then those of each application."""

from metaprior.applications import applications
from metaprior.cli.application import app, main
from metaprior.cli.inspection import inspect_command
from metaprior.cli.inspectors import all_inspectors
from metaprior.cli.training import evaluate, init, plan, train

__all__ = ["app", "main"]

app.command("inspect")(inspect_command(all_inspectors()))
for command in (init, train, evaluate, plan):
    app.command()(command)
for application in applications():
    application.add_commands(app)
