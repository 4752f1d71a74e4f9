"""A page to play with: points change a prior into a posterior, and days of power change the forecast of a plant."""
