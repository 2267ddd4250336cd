-- Where a topic began when it was registered. The archive of a topic that has no table yet counts from there.
ALTER TABLE truelog.event_cut ADD COLUMN began jsonb NOT NULL DEFAULT '{}';
