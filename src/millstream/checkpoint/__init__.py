"""Epoch manifests, the protocol that commits and publishes epochs, restarts, and retention."""

from __future__ import annotations
