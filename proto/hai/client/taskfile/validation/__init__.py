"""The rules of a task spec that need no server: one validator for the client, the editors' schema and the server.

rules.py         what each field may hold by itself: a table, which the JSON schema is generated from
conditions.py    what a field may hold beside another one; the JSON schema says those that it can
violations.py    the collector, and the texts of violations
"""

from hai.client.taskfile.validation.conditions import violations
from hai.client.taskfile.validation.rules import tag_violations

__all__ = ["tag_violations", "violations"]
