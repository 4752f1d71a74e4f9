"""Tables of power as they are found: long or wide, files or frames, any unit, cadence and clock."""
