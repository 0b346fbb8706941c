"""One sync from beginning to end: snapshot, plan, apply, push, commit the base."""
