"""Measured tables, beside published figures and other libraries: ``python -m benchmarks NAME`` in a clone's root.

Every module or folder here except ``common`` is a benchmark: ``benchmarks/NAME.py`` (or ``benchmarks/NAME/``) defines
``BENCHMARK``, and nothing else has to be changed to add one.
"""
