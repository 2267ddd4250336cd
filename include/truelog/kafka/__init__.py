"""Kafka's clients, which turn the platform's names into those of its environment, and back.

`settings.kafka(…)` names the namespace among its options. Another client refuses that option, so that no client can use
the names of an environment without a namespace by mistake. A topic that belongs to another environment is only read.
"""
