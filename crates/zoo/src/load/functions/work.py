"""The functions of the bench that its server never imports."""

from server import note as _note


def note(token: str, file: str) -> str:
    """Writes down that it ran."""
    return _note(token, file)


def b(x: float) -> float:
    """Returns its argument."""
    return x


c = d = e = b
