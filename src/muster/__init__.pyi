from muster.sdk.app import App as App
from muster.sdk.client import AsyncClient as AsyncClient
from muster.sdk.client import Client as Client
from muster.sdk.context import AsyncTaskContext as AsyncTaskContext
from muster.sdk.context import TaskContext as TaskContext
from muster.sdk.errors import GiveUp as GiveUp
from muster.sdk.errors import TaskCancelled as TaskCancelled
from muster.sdk.errors import TaskEnded as TaskEnded
from muster.sdk.errors import TaskFailed as TaskFailed
from muster.sdk.errors import TaskStopped as TaskStopped
from muster.sdk.errors import WorkerBroken as WorkerBroken
from muster.sdk.handles import AsyncHandle as AsyncHandle
from muster.sdk.handles import Handle as Handle
from muster.sdk.kit import MusterKit as MusterKit
from muster.sdk.kit import Question as Question
from muster.sdk.task_queue import QueueStatus as QueueStatus
from muster.sdk.task_queue import QueueTask as QueueTask
from muster.sdk.task_queue import TaskQueue as TaskQueue
from muster.sdk.task_queue import TaskResult as TaskResult
from muster.sdk.task_queue import TaskSummary as TaskSummary
from muster.sdk.task_queue import TaskTool as TaskTool
from muster.sdk.tasks import AppTask as AppTask

__version__: str
