"""A simulator: the real engine, services and SQLite on a clock and a chance that it owns.

One seed is one life of a crew: workers, agents, owners and people, with faults.  After each commit the promises
of the design are checked; at the end all faults are healed and the crew must come to rest.
`python -m muster.testing.sim --seeds 50` runs it.
"""
