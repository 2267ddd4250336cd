-- A span of `matches` with too many events keeps the matches of the first events.
COMMENT ON TABLE truelog.oversized_group IS 'Groups with more inputs than their view allows, noticed by a merge. They have no rows, or those of the first inputs';
