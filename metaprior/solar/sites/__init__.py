"""Forecasts of single plants: tables of power, their checks, and what is known about each plant."""
