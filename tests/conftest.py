"""What holds for all tests: an example of hypothesis may take as long as a busy machine makes it take."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() != "mutation":  # which says so, too
    settings.load_profile("busy")
