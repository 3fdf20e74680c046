"""Certificates, credentials and the objects of a first start."""
