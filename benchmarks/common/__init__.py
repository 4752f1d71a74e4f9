"""What the benchmarks share: results, processes, budgets of training time, data sets, other libraries."""
