"""Join: the tables that count how rows in the view's other tables combine."""
