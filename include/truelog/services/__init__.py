"""Truelog's own services: one folder each, with one declaration."""
