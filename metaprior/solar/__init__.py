"""From frames of irradiance or cloud to windows, tasks, baselines and forecast files."""
