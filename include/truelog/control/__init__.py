"""Control: which applications should run, the lease that lets one process run each, the state of each view."""
