"""The general path: every option, event by event, in the order of the reference."""
