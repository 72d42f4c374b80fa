"""One seed, one key for each purpose: by name, so that a new purpose does not move the others."""

import zlib

import jax.random as jr
from jaxtyping import PRNGKeyArray


def named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """The key for `name`, e.g. "trunk"."""
    return jr.fold_in(key, zlib.crc32(name.encode()))
