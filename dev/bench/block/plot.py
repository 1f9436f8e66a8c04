"""Latency against throughput: a curve for each side, a point for each depth."""
import math

from block.report import middle


def sweep(runs, path):
    """Draws the jobs `RW DEPTH` of 4 KiB among `runs` (job -> side -> results) into an SVG or PNG file."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    kinds = {}
    for job, sides in runs.items():
        words = job.split()
        if len(words) == 2 and words[0] in ('randwrite', 'randread'):
            for side, results in sides.items():
                if any(results):
                    point = middle(results, 'value'), middle(results, 'p50_us'), middle(results, 'p99_us'), int(words[1])
                    kinds.setdefault(words[0], {}).setdefault(side, []).append(point)
    figure, axes = pyplot.subplots(1, max(len(kinds), 1), figsize=(6.5 * max(len(kinds), 1), 4.8), squeeze=False)
    for ax, (kind, sides) in zip(axes[0], sorted(kinds.items(), reverse=True)):
        for side, points in sides.items():
            points.sort(key=lambda p: p[3])
            line, = ax.plot([p[0] for p in points], [p[1] for p in points], marker='o', label=f'{side}, median')
            ax.plot([p[0] for p in points], [p[2] for p in points], marker='.', linestyle=':', color=line.get_color(),
                    label=f'{side}, 99 %')
            for value, p50, _, depth in points:
                ax.annotate(depth, (value, p50), textcoords='offset points', xytext=(4, 5), fontsize=7, color=line.get_color())
        ax.set(title=f'4 KiB {kind}', xlabel='operations a second', ylabel='latency, us', xscale='log', yscale='log')
        low, high = (math.floor(math.log10(min(p[1] for s in sides.values() for p in s))),
                     math.ceil(math.log10(max(p[2] for s in sides.values() for p in s))))
        ax.set_ylim(10**low, 10**high)
        ax.grid(True, which='both', alpha=0.25)
        ax.legend(fontsize=8)
    figure.suptitle('Numbers at the points: operations under way')
    figure.tight_layout()
    figure.savefig(path)
