"""The rules of a task spec that need no server. The client, the schema for editors and the server share them.

rules.py         rules about single fields: a table, from which the JSON schema is generated
conditions.py    rules about several fields; the JSON schema has those that it can express
violations.py    the collector of violations, and helpers for their texts
"""

from hai.client.taskfile.validation.conditions import violations
from hai.client.taskfile.validation.rules import tag_violations

__all__ = ["tag_violations", "violations"]
