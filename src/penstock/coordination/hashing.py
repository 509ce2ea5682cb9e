"""Which partition of an internal topic a group or a transactional id belongs to. Pure."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """String.hashCode of Java: it decides which partition a group lives in."""
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (31 * code + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


def partition_of(key: str, partition_count: int) -> int:
    code = abs(java_hash(key))
    return (code if code <= 0x7FFFFFFF else 0) % partition_count  # Java has no abs of its smallest number
