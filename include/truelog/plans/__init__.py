"""Functions of rows as Spark plans: what a plan says about a transform or a fold, and the plan of a fold in steps."""
