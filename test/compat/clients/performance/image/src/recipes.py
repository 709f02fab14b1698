"""Found through the script's PYTHONPATH only."""


def losses(rank: int) -> list[tuple[int, float]]:
    return [(1, 10.0 + rank), (2, 5.0 + rank), (3, 2.5 + rank)]
