"""The estimators beside what a user would pick instead, on small tables and on tables of groups."""
