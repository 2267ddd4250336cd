-- The span of the merge of a sampled transaction, below which the API tells when it has pushed the changes.
ALTER TABLE truelog.output_step ADD COLUMN traceparent text;
