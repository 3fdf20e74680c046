"""A certificate and a request for one, in PEM, made with one key."""

from __future__ import annotations

import base64
import datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding


@cache
def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def a_signing_request() -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(_key(), hashes.SHA256()).public_bytes(Encoding.PEM)


@cache
def a_certificate(*, serial_number: int = 1, is_authority: bool = False) -> bytes:
    begin, end = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2024, 2044))
    builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(x509.Name([]))
    builder = builder.serial_number(serial_number).public_key(_key().public_key())
    builder = builder.not_valid_before(begin).not_valid_after(end)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    return builder.sign(_key(), hashes.SHA256()).public_bytes(Encoding.PEM)


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()
