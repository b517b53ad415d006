"""Keeps the secrets of the environment out of errors."""

from __future__ import annotations

import json
import os
import re

from unhang._json import well_formed

_SHORTEST = 8
_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH|COOKIE|PRIVATE|BEARER|DSN|(?:^|_)PAT(?:_|$)", re.IGNORECASE)
# Folders, which a traceback is full of.
_NO_SECRETS = ("PWD", "OLDPWD")
_PASSWORD_OF_URL = re.compile(r"[a-z][a-z\d+.-]*://[^/@\s]*:([^/@\s]+)@", re.IGNORECASE)

_remembered: dict[str, str] = {}


def remember() -> None:
    """Remembers the environment: a function may remove a secret from it, and still have it."""
    _remembered.update(os.environ)


def without_secrets(text: str) -> str:
    """Replaces the values of variables whose names sound like secrets, and the passwords of those that are URLs."""
    forms = {form: name for source in (_remembered, os.environ) for name, value in source.items() for form in _forms(name, value)}
    # A secret may begin with another one, so the longest comes first.
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, f"[{forms[form]}]")
    return well_formed(text)


def _forms(name: str, value: str) -> set[str]:
    """Returns the secrets in a variable as they are, as `repr` and JSON write them, and their lines."""
    url = _PASSWORD_OF_URL.match(value)
    if url is None and (name in _NO_SECRETS or not _NAMES.search(name)):
        return set()
    forms: set[str] = set()
    for secret in (value, *(url.groups() if url else ())):
        forms |= {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], *secret.splitlines()}
    return {form for form in forms if len(form) >= _SHORTEST}
