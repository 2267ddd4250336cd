"""Control: which applications should run, the lease that allows one process for each, and the status of each view."""
