"""Search for the best values of config fields with Optuna."""
