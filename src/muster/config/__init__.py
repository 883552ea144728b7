"""What a project is, and how it wants to be run: `muster.toml`, read once, checked whole, then frozen."""
