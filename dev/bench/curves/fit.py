"""How a quantity grows: the exponent of the power law through its points."""
import math


def exponent(points):
    """The slope of log y over log x by least squares; None for fewer than two points. 0: it does not grow; 1: as its input."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len(logs) < 2:
        return None
    mx, my = (sum(values) / len(logs) for values in zip(*logs))
    across = sum((x - mx) ** 2 for x, _ in logs)
    return sum((x - mx) * (y - my) for x, y in logs) / across if across else None
