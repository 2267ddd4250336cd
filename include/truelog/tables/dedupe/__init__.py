"""Dedupe: the tables that note which events a view has seen, so that copies count once."""
