"""What a scheduling pass reads (a snapshot) and answers (a plan)."""
