"""Stand in for a project's own module, which the driver imports."""


def squares(count: int) -> list[int]:
    """Give the first squares."""
    return [number**2 for number in range(1, count + 1)]
