"""Loads declaration files: on trial in a process of their own, and then in this process."""
