"""Tables of what was seen: a row for each job and side, with the ratio to the first side within each pair."""
import statistics

from block import images

WIDTH = 18                                     # of a job's name


def middle(results, key):
    values = [r[key] for r in results if r and r.get(key) is not None]
    return statistics.median(values) if values else None


def ratios(results, first, key='value'):
    return [a[key] / b[key] for a, b in zip(results, first) if a and b and a.get(key) and b.get(key)]


def spread(values):
    return f'{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})' if values else ''


def number(value, form):
    return '' if value is None else format(value, form)


def jobs(runs, units):
    """`runs`: job -> side -> results, one for each pair."""
    head = f"{'job':{WIDTH}} {'side':10} {'':6}{'':>8}  {'ratio (least..largest)':22} {'p50 us':>7} {'p99':>7} {'p99.9':>7}  "
    lines = [head + f"{'server us/op':>12} {'ratio':22} {'client us/op':>12} {'written/byte':>12}"]
    for job, sides in runs.items():
        first = next(iter(sides.values()))
        title = job
        for side, results in sides.items():
            if not any(results):
                continue
            own = results is first
            lines.append((
                f"{title:{WIDTH}} {side:10} {units[job]:6}{number(middle(results, 'value'), '8.0f')}  "
                f"{'' if own else spread(ratios(results, first)):22} {number(middle(results, 'p50_us'), '7.0f')} "
                f"{number(middle(results, 'p99_us'), '7.0f')} {number(middle(results, 'p999_us'), '7.0f')}  "
                f"{number(middle(results, 'cpu_us'), '12.0f'):>12} "
                f"{'' if own else spread(ratios(results, first, 'cpu_us')):22} "
                f"{number(middle(results, 'client_cpu_us'), '12.0f'):>12} {number(middle(results, 'written_per_byte'), '12.2f'):>12}"
            ).rstrip())
            title = ''
    return '\n'.join(lines)


def operations(seen):
    """`seen`: side -> results of `images.measure`, one for each pair."""
    lines = [f"{'':40} {'side':10} {'seconds':>8}  ratio (least..largest)"]
    for name in images.OPERATIONS:
        first, title = next(iter(seen.values())), images.TITLES[name]
        for side, results in seen.items():
            ratio = '' if results is first else spread(ratios(results, first, name))
            lines.append(f"{title:40} {side:10} {middle(results, name):8.2f}  {ratio}".rstrip())
            title = ''
    return '\n'.join(lines)
