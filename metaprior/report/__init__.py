"""Pictures. The only place that imports matplotlib."""
