-- The time of a step is that of its rows. `now()` is the time at which the transaction began, minutes or hours before.
ALTER TABLE truelog.output_step ALTER COLUMN made_at SET DEFAULT clock_timestamp();
