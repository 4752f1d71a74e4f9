"""``python -m metaprior``."""

from metaprior.cli import main

main()
