"""Tools for those who test Muster, or their own agents on it."""
