-- When the file of a view was found to be gone.
ALTER TABLE truelog.view ADD COLUMN removed_at timestamptz;
