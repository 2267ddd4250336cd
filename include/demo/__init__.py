"""The demo, which `make demo` runs: it uses the platform from outside."""
