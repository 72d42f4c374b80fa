"""How much a client of the server may ask for."""

import dataclasses as dc


@dc.dataclass(frozen=True)
class Limits:
    """What one client can ask for before it is refused."""

    # of a request
    bytes: int = 8 * 2**20
    """Of a body; answered with 413."""
    numbers: int = 2_000_000
    """samples x points x channels; 422."""
    rows: int = 100_000
    """Of inputs and of points; 422."""
    # in time
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    request_seconds: float = 60.0
    """From the head to the last byte of the answer."""
    stop_seconds: int = 5
    """For requests under way when the server is stopped."""
    # at a time
    waiting: int = 16
    """Predictions under way and waiting; 503."""
    connections: int = 64
    """503."""
