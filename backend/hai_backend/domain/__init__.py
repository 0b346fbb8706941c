"""Values and enums of the platform. This package imports no other package of the platform."""
