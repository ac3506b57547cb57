"""A certificate authority for one test run: servers, and users by name."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate and of its private key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, and keeps them in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("ditk-ray tests")
        limits = x509.BasicConstraints(ca=True, path_length=None)
        signed = _certificate(self._name, self._name, self._key.public_key())
        files = self._write("ca", signed.add_extension(limits, critical=True), self._key)
        self.certificate = files.certificate

    def server(self, name: str) -> Certificate:
        """Return a certificate for a server on this machine."""
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        key = ec.generate_private_key(ec.SECP256R1())
        asked = _certificate(_name(name), self._name, key.public_key())
        return self._write(name, asked.add_extension(names, critical=False), key)

    def user(self, name: str, groups: tuple[str, ...] = ()) -> Certificate:
        """Return a certificate by which Kubernetes knows a user of these groups."""
        use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        key = ec.generate_private_key(ec.SECP256R1())
        asked = _certificate(_name(name, groups), self._name, key.public_key())
        return self._write(f"user-{name}", asked.add_extension(use, critical=False), key)

    def key_pair(self, name: str) -> Certificate:
        """Return a private and a public key that nobody signed."""
        key = ec.generate_private_key(ec.SECP256R1())
        files = self._files(name)
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        files.certificate.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, form)
        )
        files.key.write_bytes(_private(key))
        return files

    def _files(self, name: str) -> Certificate:
        stem = name.replace(":", "-").replace("/", "-")
        return Certificate(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")

    def _write(
        self, name: str, asked: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> Certificate:
        files = self._files(name)
        signed = asked.sign(self._key, hashes.SHA256())
        files.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(_private(key))
        return files


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _name(name: str, groups: tuple[str, ...] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )
