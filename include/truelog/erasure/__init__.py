"""Erasure: which records are about a person who must be forgotten, and the ledger of the erasures."""
