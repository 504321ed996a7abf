"""Predictions: one file a kind of model, one reader of output forms."""
