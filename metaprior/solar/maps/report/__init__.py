"""Draw the figures and write the page of a run on maps."""
