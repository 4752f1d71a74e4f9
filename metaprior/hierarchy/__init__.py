"""The parts of hierarchical variational inference: q(theta; psi), a posterior for every task, and their store."""
