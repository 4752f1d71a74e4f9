"""What hierarchical variational inference is made of: q(theta; psi), a posterior for every task, and their store."""
