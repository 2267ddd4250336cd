"""Tests of the long-lived applications."""
