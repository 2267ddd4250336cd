"""Control: which applications should run, the lease that limits each to one process, and the status of each view."""
