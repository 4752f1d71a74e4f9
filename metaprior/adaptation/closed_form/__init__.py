"""The exact posterior of a network's last layer."""
