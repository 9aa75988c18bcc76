"""The manifest of an epoch, the protocol that commits and publishes epochs, restarts, and what may be deleted."""

from __future__ import annotations
