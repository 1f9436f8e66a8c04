"""Pages in headless Chromium, by its command line alone: what is wider than its place, which letters are small, which texts lie upon each other.

The page is put into a frame of the wanted width, since Chromium's window is never narrower than some 500 px; a script in it opens all that is folded,
measures, and hands what it found to the page around, which is dumped.
"""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LIMIT_S = 180
# Files of the profile are the test's; as root, and where /dev/shm is small.
FLAGS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
         "--allow-file-access-from-files", "--virtual-time-budget=60000"]  # fmt: skip
MEASURE = """
<script>
addEventListener('load', () => {
  document.querySelectorAll('details').forEach(d => d.open = true);
  const what = e => e.tagName.toLowerCase() + ': ' + (e.closest('figure') || e).textContent.trim().replace(/\\s+/g, ' ').slice(0, 60);
  const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const found = {page: [document.documentElement.scrollWidth, document.documentElement.clientWidth], cut: [], scrolled: [], tables: 0, small: [], upon: []};
  for (const t of document.querySelectorAll('table, figure > svg')) {
    found.tables += t.tagName == 'TABLE';
    const box = t.parentElement, room = box.clientWidth, width = t.getBoundingClientRect().width;
    if (width > room + 1) (scrolls(box) ? found.scrolled : found.cut).push([what(t), Math.round(width), room, t.rows ? t.rows[0].cells.length : 0]);
  }
  for (const c of document.querySelectorAll('td, th, li, p, h1, h2, h3, figcaption, summary'))
    if (c.scrollWidth > c.clientWidth + 1 && getComputedStyle(c).display != 'inline') found.cut.push([what(c), c.scrollWidth, c.clientWidth]);
  for (const figure of document.querySelectorAll('figure')) {
    const boxes = [...figure.querySelectorAll('svg text')].map(t => [t.textContent.trim(), t.getBoundingClientRect(), parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)]).filter(b => b[0]);
    for (const [text, , size] of boxes) if (size < LEAST_PX) found.small.push([figure.id || what(figure), text, Math.round(size * 10) / 10]);
    const rotated = [...figure.querySelectorAll('svg text')].some(t => Math.abs(t.getScreenCTM().b) > 0.01 && Math.abs(t.getScreenCTM().a) > 0.01);
    boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
      const x = Math.min(p.right, q.right) - Math.max(p.left, q.left), y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (!rotated && x > 2 && y > 0.35 * Math.min(p.height, q.height)) found.upon.push([figure.id || what(figure), a, b]);
    }));
  }
  parent.postMessage(JSON.stringify(found), '*');
});
</script>
"""
AROUND = """<!doctype html><meta charset="utf-8"><body style="margin:0"><iframe id="page" src="{src}" style="width:{width}px;height:{height}px;border:0"></iframe>
<pre id="found"></pre><script>addEventListener('message', e => document.getElementById('found').textContent = e.data)</script>"""


def _run(directory: Path, *words: str) -> str:
    argv = [str(CHROMIUM), *FLAGS, f"--user-data-dir={directory}/chromium-profile", *words]
    env = {**os.environ, "HOME": str(directory), "XDG_CACHE_HOME": str(directory)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env=env, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _framed(page: Path, directory: Path, width: int, height: int, script: str) -> Path:
    text = page.read_text()
    inner = directory / f"{page.stem}-inner.html"
    inner.write_text(text.replace("</body>", script + "</body>"))
    around = directory / f"{page.stem}-{width}.html"
    around.write_text(AROUND.format(src=inner.name, width=width, height=height))
    return around


def measured(page: Path, directory: Path, width: int, least_px: float = 7.0) -> dict:
    """What MEASURE finds of a page that is so wide."""
    around = _framed(page, directory, width, 900, MEASURE.replace("LEAST_PX", str(least_px)))
    dumped = _run(directory, "--dump-dom", "--window-size=1600,1000", around.as_uri())
    found = re.search(r'<pre id="found">(.*?)</pre>', dumped, re.S)
    assert found and found.group(1), dumped[-2000:]
    return json.loads(html.unescape(found.group(1)))


OPEN = "<script>document.querySelectorAll('details').forEach(d => d.open = true); scrollTo(0, TOP)</script>"


def shot(page: Path, directory: Path, width: int, out: Path, top: int = 0, height: int = 2400) -> None:
    """A picture, for people who look at one: `python browser.py PAGE WIDTH OUT [TOP]`."""
    around = _framed(page, directory, width, height, OPEN.replace("TOP", str(top)))
    _run(directory, f"--screenshot={out}", f"--window-size={max(width, 500)},{height}", around.as_uri())


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        shot(Path(sys.argv[1]), Path(made), int(sys.argv[2]), Path(sys.argv[3]).absolute(), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
