"""The commands of a task's life, as values.

The worker protocol sends them as they stand (camelCase JSON), so there is no second set of shapes to keep in
step.  `epoch` is the fencing token: together with `task_id` it names the one attempt that may act.
"""

from muster.model.commands.access import *
from muster.model.commands.agents import *
from muster.model.commands.base import *
from muster.model.commands.crew import *
from muster.model.commands.secrets import *
from muster.model.commands.tasks import *
from muster.model.commands.webhooks import *
from muster.model.scalars import *
