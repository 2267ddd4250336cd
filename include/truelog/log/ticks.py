"""Ticks: the clock of the log. A service writes the time and the end offsets of every topic into a topic.

The service determines a tick's time first and reads the end offsets afterwards, so every record appended before that
time is below these offsets. If positions V have passed a tick and reached its end offsets, the time at V is therefore
at least the tick's time. The latest such time is the clock at V, which depends on V alone. The clock advances even on a
quiet log, and neither an idle nor a fast partition affects it. The service's clock and the brokers' clocks must agree.

A tick is an ordinary event (`include/events/ticks.py`). `occurred_at` is the tick's time. The `ends` field contains
`{topic: {partition: offset}}` as text, written by `Positions.as_json`. `Positions.from_json` parses this text,
PostgreSQL reads it as jsonb, and Spark reads it with `from_json(ends, 'map<string,map<int,bigint>>')`.
"""
