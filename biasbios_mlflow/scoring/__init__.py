"""From counts to scores: pure functions, no MLflow tracking."""
