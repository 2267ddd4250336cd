-- The history of a view's size. Comparisons before this release have none.
ALTER TABLE truelog.reconciliation ADD COLUMN bytes bigint;
