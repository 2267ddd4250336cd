"""Commands: requests that are decided on current state before their events enter the log.

`docs/decisions/076-commands.md` describes the protocol.
"""
