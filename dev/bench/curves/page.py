"""What was found, for people: a table for each axis, and plots."""
import math

from curves.fit import exponent


def number(value):
    if value is None:
        return ''
    return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.3g}'


def tables(found):
    """`found`: axis -> {unit, steps: [{x, quantity: value}]}."""
    lines = []
    for name, axis in found.items():
        steps = axis['steps']
        quantities = [q for q in steps[0] if q != 'x']
        lines += [f"### {name}: {axis['unit']}", '', '| | ' + ' | '.join(f"{s['x']:,}" for s in steps) + ' | exponent |',
                  '|---' * (len(steps) + 2) + '|']
        for quantity in quantities:
            slope = exponent([(s['x'], s[quantity]) for s in steps if s.get(quantity)])
            cells = ' | '.join(number(s.get(quantity)) for s in steps)
            lines.append(f"| {quantity} | {cells} | {'' if slope is None else f'{slope:.2f}'} |")
        lines.append('')
    return '\n'.join(lines)


def plot(found, path):
    """One small plot for each axis: every quantity over the input, relative to its first value."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    across = 3
    down = math.ceil(len(found) / across)
    figure, axes = pyplot.subplots(down, across, figsize=(5.2 * across, 4 * down), squeeze=False)
    for ax, (name, axis) in zip(axes.flat, found.items()):
        steps = axis['steps']
        for quantity in (q for q in steps[0] if q != 'x'):
            points = [(s['x'], s[quantity]) for s in steps if s.get(quantity)]
            if points:
                ax.plot([x for x, _ in points], [y / points[0][1] for _, y in points], marker='o', markersize=3, label=quantity)
        inputs = [s['x'] for s in steps]
        ax.plot(inputs, [x / inputs[0] for x in inputs], color='black', linestyle=':', linewidth=1, label='as the input')
        ax.set(title=f"{name}: {axis['unit']}", xscale='log', yscale='log', ylabel='times the first')
        ax.title.set_fontsize(9)
        ax.grid(True, which='both', alpha=0.25)
        ax.legend(fontsize=7)
    for ax in list(axes.flat)[len(found):]:
        ax.remove()
    figure.tight_layout()
    figure.savefig(path)
