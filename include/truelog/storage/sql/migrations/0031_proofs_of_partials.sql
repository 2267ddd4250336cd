-- The ids of the partials that were compared: partials that replace them are not proved.
ALTER TABLE truelog.proof ADD COLUMN partials text NOT NULL DEFAULT '';
