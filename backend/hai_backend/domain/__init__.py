"""Values and enums of the platform; imports no other package of ours."""
