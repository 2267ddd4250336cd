"""Versions: a new version of a view is built and proved beside the version that readers see, and then readers move."""
