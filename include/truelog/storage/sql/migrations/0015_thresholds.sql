-- Notification rules about the rows of views. A delivery has its channel, so a channel that accepts nothing slows no other.
ALTER TABLE truelog.notification_row ADD COLUMN declared uuid;
CREATE INDEX notification_row_declared ON truelog.notification_row (declared) WHERE declared IS NOT NULL;

ALTER TABLE truelog.notification_delivery ADD COLUMN channel text;
UPDATE truelog.notification_delivery d SET channel = i.channel FROM truelog.notification_incident i WHERE i.id = d.incident;
ALTER TABLE truelog.notification_delivery ALTER COLUMN channel SET NOT NULL;
ALTER TABLE truelog.notification_delivery DROP CONSTRAINT notification_delivery_says_check;
ALTER TABLE truelog.notification_delivery ADD CONSTRAINT notification_delivery_says_check
    CHECK (says IN ('opened', 'retracted', 'resolved', 'ended'));
ALTER TABLE truelog.notification_delivery DROP CONSTRAINT notification_delivery_outcome_check;
ALTER TABLE truelog.notification_delivery ADD CONSTRAINT notification_delivery_outcome_check
    CHECK (outcome IN ('delivered', 'refused', 'abandoned', 'over'));
DROP INDEX truelog.notification_delivery_waiting;
CREATE INDEX notification_delivery_waiting ON truelog.notification_delivery (channel, next_at, number) WHERE done_at IS NULL;
CREATE INDEX notification_delivery_held ON truelog.notification_delivery (incident) WHERE done_at IS NULL AND next_at = 'infinity';
