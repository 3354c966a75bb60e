"""Programs that exercise each operator, and which operators there are."""
