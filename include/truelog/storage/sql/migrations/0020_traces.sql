-- The few records that alone have changed the rows of a transaction, whose `traceparent` the relay passes on.
ALTER TABLE truelog.output_step ADD COLUMN records text;
