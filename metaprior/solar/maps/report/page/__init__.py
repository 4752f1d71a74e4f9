"""The parts of the report's page: what it shows, numbers as text, maps as bytes, tables; HTML, CSS and script."""
