"""SIGKILL of the server under clients of messenger v1."""
from skeptest.again import again

globals().update(again(
    'failures/test_kill.py', 'kill_loop_under_a_client_that_lives_on', 'kill_under_fio_with_verification', 'watch_returns_after_a_restart'))
