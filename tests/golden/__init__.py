"""Golden digests: what small deterministic runs of every method and engine give, to be compared after every change.

``pytest tests/golden`` compares with ``digests.json``. ``python -m tests.golden --help`` has the rest: ``--update``
rewrites that file, ``--bitwise`` and ``--compare`` tell whether two versions agree bitwise on one machine.

Each case is a function in one of the ``cases_*.py`` that returns entries by name. Everything in them that depends on
how the package is called is in small functions, so that a renamed API changes those and never the numbers.
"""
