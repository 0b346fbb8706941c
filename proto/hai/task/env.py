"""Names of the environment variables that the platform sets and programs read. The agent imports this module, too."""

from __future__ import annotations

CONTROL_FILE = "HAI_CONTROL_FILE"  # path of the mapped file: see hai.task.control_file
AGENT_SOCKET = "HAI_AGENT_SOCKET"  # unix socket of the agent: see hai.task.agent_channel
RANK_KEY = "HAI_RANK_KEY"  # task-run-rank; every process of the rank has it
TASK_ID = "HAI_TASK_ID"
RUN_NUMBER = "HAI_RUN"
TASK_NAME = "HAI_TASK_NAME"
USER = "HAI_USER"
NODE_NAME = "HAI_NODE_NAME"
CHECKPOINT_DIR = "HAI_CHECKPOINT_DIR"  # kept over all runs of the task
# directory in memory for checkpoints that are not yet on disk: see hai.task.staging. Unset: they are written directly.
STAGING_DIR = "HAI_STAGING_DIR"
STAGING_BYTES = "HAI_STAGING_BYTES"  # limit for all tasks of the node; in a pod, for this task
# the only directories, separated by colons, whose checkpoints are staged. Unset: all directories
STAGING_TARGETS = "HAI_STAGING_TARGETS"
# the memory that the staging directory is in, if the host name does not say that: in a pod, NODE/TASK
STAGING_MACHINE = "HAI_STAGING_MACHINE"
SERVICE_NAME = "HAI_SERVICE_NAME"  # name of the service that this process runs
BASE_URL = "HAI_BASE_URL"  # URL path at which browsers reach a service; ends with a slash
CONFIG = "HAI_CONFIG"  # path of the file with the profiles of `hai`
# path of a file that is created when a dev container must stop: see docs/contributing/containers.md
NOTICE_FILE = "HAI_NOTICE_FILE"
RANK = "RANK"  # index of the node, as in HAI; torchrun replaces it for each process
WORLD_SIZE = "WORLD_SIZE"
MASTER_ADDR = "MASTER_ADDR"
MASTER_IP = "MASTER_IP"
MASTER_PORT = "MASTER_PORT"
NNODES = "NNODES"
NODE_RANK = "NODE_RANK"
NPROC_PER_NODE = "NPROC_PER_NODE"
LOCAL_RANK = "LOCAL_RANK"
TASK_TYPE = "MARSV2_TASK_TYPE"
WHOLE_LIFE_STATE = "MARSV2_WHOLE_LIFE_STATE"
SIMULATE = "HFAI_SIMULATE"  # 1 in a simulation with `hai python FILE ++`
SIMULATE_SUSPEND = "SIMULATE_SUSPEND"  # seconds after which a suspend is simulated
