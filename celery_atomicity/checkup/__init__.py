"""
Whether an arbiter and the settings are fit for what is asked of them, and what to do if not.

    facts          what is known of each address, the settings and the broker
    examine        finding it out: the only part that asks anybody
    findings       what a rule says: how bad, what, and the remedy
    server_rules   facts of one address to findings
    rights_rules   the same of what our user may do there
    fleet_rules    facts of all of them, of the settings and the broker to findings

Only for a person who asks; nothing here is on the way of a decision.
"""

from celery_atomicity.checkup.examine import examine
from celery_atomicity.checkup.facts import BrokerFacts, Facts, ServerFacts
from celery_atomicity.checkup.findings import Finding, Level
from celery_atomicity.checkup.fleet_rules import judge

__all__ = ["BrokerFacts", "Facts", "Finding", "Level", "ServerFacts", "examine", "judge"]
