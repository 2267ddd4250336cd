"""Views: the declarations of a view, and the catalogue of declared views."""
