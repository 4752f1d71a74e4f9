"""Benchmarks: measured beside published or live peers, printed as a table, written as JSON."""
