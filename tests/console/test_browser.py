"""The console in headless Chromium: no violation by axe in light, dark and on a narrow screen; by keyboard; with and without scripts."""
import pytest
from selenium.webdriver.common.keys import Keys

from skeptest.chromium import Chromium
from skeptest.cluster import unique

pytestmark = [pytest.mark.own, pytest.mark.cephx]
PAGES = ['/', '/doctor', '/osds', '/pools', '/images', '/files', '/buckets', '/pgs', '/slow', '/why', '/why?look=1', '/log', '/nothing']
LOOKS = [('light', 1280), ('dark', 1280), ('light', 400)]


@pytest.fixture(scope='module')
def chromium(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp('profile')) as browser:
        yield browser


@pytest.fixture(scope='module')
def image(served, images):
    name = unique('seen')
    served.rbd('create', '--size', '64M', '%s/%s' % (images, name))
    for snap in ('one', 'two'):
        served.rbd('snap', 'create', '%s/%s@%s' % (images, name, snap))
    served.rbd('snap', 'protect', '%s/%s@one' % (images, name))
    return name


@pytest.fixture
def inside(served, chromium, admin_key):
    chromium.looks()
    chromium.login(served.url, 'client.admin', admin_key)
    yield chromium
    chromium.scripts(True)
    chromium.open(served.url)
    chromium.click('Log out')


def test_a_flow_with_confirmation(served, inside, images, image):
    inside.complaints()
    inside.open('%s/image?pool=%s&namespace=&image=%s' % (served.url, images, image))
    inside.click('Remove two')
    inside.wait(lambda: 'lost for ever' in inside.text(), 'the second page')
    inside.click('Remove snapshot %s/%s@two' % (images, image))
    inside.wait(lambda: 'Done: rbd snap rm' in inside.text(), 'the end')
    assert 'two' not in served.rbd('snap', 'ls', '%s/%s' % (images, image)).out.split()
    assert inside.complaints() == []


def test_parts_refresh_themselves(served, inside):
    inside.open(served.url + '/')
    assert 'noscrub flag(s) set' not in inside.text()
    served.ceph('osd', 'set', 'noscrub')
    try:
        inside.wait(lambda: 'noscrub flag(s) set' in inside.text(), 'the page to show it by itself')
    finally:
        served.ceph('osd', 'unset', 'noscrub')
    assert inside.complaints() == [], 'htmx does nothing that the policy forbids'


def test_without_scripts(served, inside, images):
    inside.scripts(False)
    name = unique('plain')
    inside.open('%s/images?pool=%s' % (served.url, images))
    inside.one('#new-name').send_keys(name)
    inside.one('#new-size').send_keys('8M')
    inside.click('Create image')
    inside.wait(lambda: 'Done: rbd create' in inside.text(), 'the image')
    assert name in served.rbd('ls', images).out.split()


def test_by_keyboard(served, inside):
    inside.open(served.url + '/')
    inside.one('body').send_keys(Keys.TAB)
    focused = inside.driver.switch_to.active_element
    assert focused.text == 'Skip to content' and focused.is_displayed()
    focused.send_keys(Keys.ENTER)
    assert inside.driver.switch_to.active_element.get_attribute('id') == 'main'


@pytest.mark.parametrize('scheme, width', LOOKS)
def test_axe_finds_nothing(served, inside, images, image, scheme, width):
    served.ceph('osd', 'set', 'nodeep-scrub')
    served.ceph('osd', 'out', '2')
    found = {}
    try:
        inside.looks(scheme, width)
        for path in PAGES + ['/images?pool=%s' % images, '/image?pool=%s&namespace=&image=%s' % (images, image)]:
            inside.open(served.url + path)
            found[path] = inside.violations()
            assert not inside.wider_than_the_screen(), path
        inside.open(served.url + '/osds')
        inside.click('Take osd.2 in')
        inside.wait(lambda: 'Leave it as it is' in inside.text(), 'the second page')
        found['confirm'] = inside.violations()
    finally:
        served.ceph('osd', 'in', '2')
        served.ceph('osd', 'unset', 'nodeep-scrub')
    assert not any(found.values()), '\n'.join('%s: %s' % (p, v) for p, all_ in found.items() for v in all_)


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_the_login_by_axe(served, chromium, scheme):
    chromium.looks(scheme)
    chromium.open(served.url + '/login')
    chromium.one('#key').send_keys('wrong')
    chromium.click('Log in')
    chromium.wait(lambda: 'No entity of this name' in chromium.text(), 'the refusal')
    assert chromium.violations() == []
