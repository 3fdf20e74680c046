"""Fixtures of these tests."""

from tests.short_paths import tmp_path as tmp_path
