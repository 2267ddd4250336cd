-- Notifications of what events say: how far the notifier is, the rows and incidents that it knows, and its deliveries.
CREATE TABLE truelog.notifier (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), looked_at timestamptz NOT NULL, topic_id text, next_offset bigint
);
COMMENT ON TABLE truelog.notifier IS 'When the notifier last looked for changes, and how far the notification rules were read; at most one row';

CREATE TABLE truelog.notification_place (
    view text PRIMARY KEY, version integer NOT NULL, beginning uuid NOT NULL, number bigint NOT NULL
);
COMMENT ON TABLE truelog.notification_place IS 'The number of the last changed row of each view that the notifier has read';

CREATE TABLE truelog.notification_incident (
    id uuid PRIMARY KEY, notification text NOT NULL, channel text NOT NULL, grouped text NOT NULL, until timestamptz NOT NULL,
    body jsonb NOT NULL, opened_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX notification_incident_group ON truelog.notification_incident (notification, grouped, until);
COMMENT ON TABLE truelog.notification_incident IS 'The rows of one notification rule that one notification tells of, with what it said';

CREATE TABLE truelog.notification_row (
    notification text, view text, key text, number bigint NOT NULL, change text NOT NULL, value text NOT NULL,
    settled_after timestamptz, incident uuid REFERENCES truelog.notification_incident, retracted boolean NOT NULL DEFAULT false, changed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (notification, view, key)
);
CREATE INDEX notification_row_key ON truelog.notification_row (view, key);
CREATE INDEX notification_row_untold ON truelog.notification_row (view) WHERE incident IS NULL;
CREATE INDEX notification_row_incident ON truelog.notification_row (incident);
COMMENT ON TABLE truelog.notification_row IS 'The rows that a notification rule fits; without an incident until they are settled';

CREATE TABLE truelog.notification_delivery (
    id uuid PRIMARY KEY, number bigint GENERATED ALWAYS AS IDENTITY, incident uuid NOT NULL REFERENCES truelog.notification_incident,
    says text NOT NULL CHECK (says IN ('opened', 'retracted')), made_at timestamptz NOT NULL DEFAULT now(),
    tries integer NOT NULL DEFAULT 0, next_at timestamptz NOT NULL DEFAULT now(), failed text,
    outcome text CHECK (outcome IN ('delivered', 'refused', 'abandoned')), done_at timestamptz
);
CREATE INDEX notification_delivery_waiting ON truelog.notification_delivery (number) WHERE done_at IS NULL;
CREATE INDEX notification_delivery_incident ON truelog.notification_delivery (incident, number);
COMMENT ON TABLE truelog.notification_delivery IS 'The notifications of incidents, with the tries to deliver each';
