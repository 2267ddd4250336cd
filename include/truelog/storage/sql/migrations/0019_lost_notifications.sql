-- An alert reads the notifications of the last hour that never arrived.
CREATE INDEX notification_delivery_lost ON truelog.notification_delivery (done_at) WHERE outcome IN ('refused', 'abandoned');
