"""The counterfactual: the same bio with the other gender's words."""
