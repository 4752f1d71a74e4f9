"""Draw the pictures and the page of a run on maps."""
