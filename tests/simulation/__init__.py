"""Tests of simulated worlds."""
