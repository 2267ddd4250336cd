"""Join: the tables that count combinations of rows of other tables of the view."""
