"""Views: the declaration of a view, its measures, the catalogue, and a view compiled against its events."""
