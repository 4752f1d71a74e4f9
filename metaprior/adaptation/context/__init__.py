"""A summary of the support set that the network reads."""
