"""Views: the declaration of a view, its measures, the catalogue, and the compiler that checks a view."""
