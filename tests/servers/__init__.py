"""Real servers for tests, one module each: a small class and, in `fixtures`, a pytest fixture.

Each server has a temporary folder and free ports on loopback. It is stopped at the end, also after a failure, and when
pytest itself is killed (`guard`). `kill()` is kill -9; `start()` afterwards uses the same data and ports.
"""
