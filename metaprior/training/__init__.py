"""Learning theta from tasks: what a meta-step does, in which order things are learned, and what is kept of it."""
