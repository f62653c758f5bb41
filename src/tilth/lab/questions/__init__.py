"""Built-in questions, one module each, and `custom` for a TOML file of trials."""
