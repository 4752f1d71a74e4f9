"""Solar forecasting: the sun, a weather simulator, scores by lead time, and forecast maps (``solar.maps``)."""
