"""Names of the variables that the platform sets and programs read. The agent imports this one file too."""

from __future__ import annotations

CONTROL_FILE = "HAI_CONTROL_FILE"  # mapped file: see hai.task.control_file
AGENT_SOCKET = "HAI_AGENT_SOCKET"  # unix socket of the agent: see hai.task.agent_channel
RANK_KEY = "HAI_RANK_KEY"  # task-run-rank; marks every process of the rank
TASK_ID = "HAI_TASK_ID"
RUN_NUMBER = "HAI_RUN"
TASK_NAME = "HAI_TASK_NAME"
USER = "HAI_USER"
NODE_NAME = "HAI_NODE_NAME"
CHECKPOINT_DIR = "HAI_CHECKPOINT_DIR"  # kept over all runs of the task
SERVICE_NAME = "HAI_SERVICE_NAME"  # of the service that this process is
BASE_URL = "HAI_BASE_URL"  # path under which browsers reach a service; ends in a slash
CONFIG = "HAI_CONFIG"  # profiles of `hai`
# appears when a dev container must terminate: see docs/contributing/containers.md
NOTICE_FILE = "HAI_NOTICE_FILE"
RANK = "RANK"  # node-wise, as in HAI; torchrun replaces it per process
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
SIMULATE = "HFAI_SIMULATE"  # 1: `hai python FILE ++`
SIMULATE_SUSPEND = "SIMULATE_SUSPEND"  # seconds after which a suspend is simulated
