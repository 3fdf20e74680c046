"""The certificate of the agent's port before the cluster has signed one."""

import asyncio
import ssl

from cryptography import x509

from dray.apiserver.security.certificates import Authority
from dray.client import Client, Connection
from dray.client.credentials import NoCredentials
from dray.client.https import HttpsTransport
from dray.kubelet.serving_certificate import CertificateSubject, ServingCertificate


async def test_the_port_is_open_with_a_certificate_of_its_own_before_one_is_signed():
    """Whoever does not check it learns nothing; the API server waits for the cluster's."""
    authority = Authority.create("cluster-ca")
    client = Client(HttpsTransport(Connection("https://127.0.0.1:1", NoCredentials())))
    serving = ServingCertificate(client, CertificateSubject("n1", "127.0.0.1"), authority.certificate_pem)
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=serving.tls)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        shown = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()
    await client.close()
    assert shown.issuer == shown.subject == CertificateSubject("n1", "127.0.0.1").subject
