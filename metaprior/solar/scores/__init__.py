"""Score solar forecasts by lead time."""
