"""Pods that wait, and what wakes them. No tasks and no clock of its own: `now` comes in, pods come out."""

from dray.scheduler.queue.entry import QueuedPod, Where
from dray.scheduler.queue.queue import SchedulingQueue

__all__ = ["QueuedPod", "SchedulingQueue", "Where"]
