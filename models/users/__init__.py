"""A user's own file and packages: imported, watched, and explained when they fail."""
