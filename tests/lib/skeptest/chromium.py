"""Headless Chromium (Debian's, driven by python3-selenium), and axe-core, which says what in a page is hard to use for some."""
import json
import os
import pathlib

import pytest
from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WITHIN_S = 120


def axe():
    """axe-core's text: a file that SKEP_TEST_AXE names (dev/test fetches it)."""
    path = os.environ.get('SKEP_TEST_AXE')
    if not path:
        pytest.skip('needs SKEP_TEST_AXE, which dev/test sets')
    return pathlib.Path(path).read_text()


class Chromium:
    """One browser with one window."""

    def __init__(self, profile):
        options = Options()
        options.binary_location = '/usr/bin/chromium'
        # As root, and where /dev/shm is small.
        for word in ('--headless=new', '--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-background-networking',
                     '--no-first-run', '--hide-scrollbars', '--user-data-dir=%s' % profile):
            options.add_argument(word)
        options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
        self.driver = webdriver.Chrome(service=Service('/usr/bin/chromedriver'), options=options)
        self.driver.set_page_load_timeout(WITHIN_S)
        self.driver.set_script_timeout(WITHIN_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def cdp(self, what, **args):
        return self.driver.execute_cdp_cmd(what, args)

    def looks(self, scheme='light', width=1280, height=900):
        """The colours that somebody prefers, and the size of his screen."""
        self.cdp('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        self.cdp('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scripts(self, on):
        self.cdp('Emulation.setScriptExecutionDisabled', value=not on)

    def open(self, url):
        self.driver.get(url)

    def login(self, url, name, key):
        self.open(url + '/login')
        field = self.one('#entity')
        field.clear()
        field.send_keys(name)
        self.one('#key').send_keys(key)
        self.click('Log in')
        self.wait(lambda: 'Overview' in self.one('h1').text, 'the overview')

    def one(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def text(self):
        """Parts of a page that refresh themselves are replaced at any moment: then it is asked again."""
        return self.wait(lambda: self.one('body').text, 'a page')

    def click(self, button):
        path = "//button[normalize-space()='%s']" % button
        self.wait(lambda: self.driver.find_element(By.XPATH, path).click() or True, 'the button ' + button)

    def wait(self, condition, what):
        gone = [NoSuchElementException, StaleElementReferenceException, ElementClickInterceptedException]
        return WebDriverWait(self.driver, WITHIN_S, 0.1, gone).until(lambda _: condition(), 'waited for ' + what)

    def violations(self):
        """What axe finds, with the element and why."""
        self.cdp('Runtime.evaluate', expression=axe())
        found = self.driver.execute_async_script(
            'const done = arguments[0]; axe.run(document).then(r => done(JSON.stringify(r.violations)), e => done(String(e)))')
        return [(v['id'], n['target'], n['failureSummary']) for v in json.loads(found) for n in v['nodes']]

    def complaints(self):
        """Errors since the last call, and what the policy stopped; not what this Chromium warns of besides."""
        said = self.driver.get_log('browser')
        return [e['message'] for e in said if e['level'] == 'SEVERE' or 'Content Security Policy' in e['message']]

    def wider_than_the_screen(self):
        return self.driver.execute_script('return document.documentElement.scrollWidth > document.documentElement.clientWidth')

    def shot(self, path):
        self.driver.save_screenshot(str(path))
