"""The gate: a policy, a decision, and a promotion that no unfair version survives."""
