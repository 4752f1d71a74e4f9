"""How a task is learned: the ways from a support set to a posterior."""
