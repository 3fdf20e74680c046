"""A certificate authority of our own, and the certificates it issues.

Keys are P-256: quick to make at first start and quick in every handshake. Kubernetes' convention holds: the common name of a
client certificate is the user, its organizations are the groups.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=3650)
LIFETIME = timedelta(days=365)
# Certificates are valid a little before they are made, for machines whose clocks differ.
BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, in PEM."""

    certificate_pem: bytes
    key_pem: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    certificate_pem: bytes
    key_pem: bytes

    @staticmethod
    def create(name: str = "dray-ca", now: datetime | None = None) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(subject, subject, key.public_key(), AUTHORITY_LIFETIME, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(key_id, critical=False)
            .sign(key, hashes.SHA256())
        )
        return Authority(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))

    def issue_server(self, name: str, hosts: Iterable[str], now: datetime | None = None) -> Pair:
        """A server certificate that is also valid for clients, for servers that call each other."""
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(subject, usages, names, now)

    def issue_client(self, user: str, groups: Sequence[str], now: datetime | None = None) -> Pair:
        return self._issue(_subject(user, groups), (ExtendedKeyUsageOID.CLIENT_AUTH,), [], now)

    def certify_server(
        self,
        user: str,
        groups: Sequence[str],
        hosts: Iterable[str],
        public_key: CertificatePublicKeyTypes,
        now: datetime,
    ) -> bytes:
        """The certificate, in PEM, of a server that keeps its key to itself; it is not valid for clients."""
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        return self._certify(_subject(user, groups), (ExtendedKeyUsageOID.SERVER_AUTH,), names, public_key, now)

    def _issue(
        self,
        subject: x509.Name,
        usages: Sequence[x509.ObjectIdentifier],
        names: Sequence[x509.GeneralName],
        now: datetime | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        return Pair(self._certify(subject, usages, names, key.public_key(), now), _key_pem(key))

    def _certify(
        self,
        subject: x509.Name,
        usages: Sequence[x509.ObjectIdentifier],
        names: Sequence[x509.GeneralName],
        public_key: CertificatePublicKeyTypes,
        now: datetime | None,
    ) -> bytes:
        authority = x509.load_pem_x509_certificate(self.certificate_pem)
        signer = serialization.load_pem_private_key(self.key_pem, None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        builder = (
            _builder(subject, authority.subject, public_key, LIFETIME, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _subject(user: str, groups: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: CertificatePublicKeyTypes,
    lifetime: timedelta,
    now: datetime | None,
) -> x509.CertificateBuilder:
    start = (now or datetime.now(UTC)).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - BACKDATED)
        .not_valid_after(start + lifetime)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def subject_of(certificate: x509.Certificate) -> tuple[str, tuple[str, ...]]:
    """User and groups of a client certificate."""
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return (str(common[0].value) if common else "", tuple(str(attribute.value) for attribute in organizations))


def allows_clients(certificate: x509.Certificate) -> bool:
    """Whether the certificate may be used by a client; one without extended key usages may be used for everything."""
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages
