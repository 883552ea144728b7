"""Settings of a project whose retries do not wait."""

SETTINGS = """\
[task]
retries = 2
[task.backoff]
first = "10ms"
max = "20ms"
"""
