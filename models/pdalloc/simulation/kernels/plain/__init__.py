"""The core path: no options, so no event per step and no work per token."""
