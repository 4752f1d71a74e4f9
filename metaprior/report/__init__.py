"""Draw figures and write pages for any application; matplotlib is imported when the first figure is drawn."""
