"""Views: the declarations of a view, the catalogue, and the compiler that checks a view."""
