"""What every test gets. Fixtures live in modules of their own, listed here."""

import freezegun

pytest_plugins = ["tests.mongod", "tests.live", "tests.fixtures"]

# pymongo times its waits by the clock: with time frozen, a call to a dead server never ends.
freezegun.configure(extend_ignore_list=["pymongo"])
