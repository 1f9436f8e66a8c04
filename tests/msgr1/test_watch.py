"""Watches and notifications by messenger v1."""
from skeptest.again import again

globals().update(again(
    'rados/test_watch.py', 'notify_reaches_all_watchers_and_collects_their_answers', 'notify_without_watchers_returns_at_once', 'watch_needs_the_object'))
