/** Types of requests and responses of the server extension. */
import { Failure } from './types';
import { Point } from './usage';

export interface Me {
  user: string;
  role: string;
  cluster: string;
  version: string;
  /** The operator who views the container of `user`; empty if there is none. */
  visitor: string;
  quotas: Array<{ group: string; priority: number; nodes: number; used: number }>;
}

export interface Group {
  name: string;
  nodes: number;
  usable_nodes: number;
  free_nodes: number;
  waiting_tasks: number;
}

/** The usage of ranks: for each measured step its time, CPUs, memory, GPUs, GPU memory. */
export interface Series {
  start: number;
  end: number;
  step: number;
  ranks: Array<{ rank: number; run: number; points: Point[] }>;
  /** All ranks together; without points if there is only one rank. */
  sum: { step: number; points: Point[] };
}

export interface Message {
  id: string;
  text: string;
  author: string;
  create_time: string;
}

export interface Environment {
  name: string;
  owner: string;
  path: string;
  parent: string;
  python_version: string;
  lock_hash: string;
  visibility: string;
  user_group: string;
  state: string;
  message: string;
  packages: number;
  /** Whether it has ipykernel; null if this server does not know. */
  kernel: boolean | null;
}

export interface Workspace {
  name: string;
  user: string;
  path: string;
  revision: string;
  files: string;
  size_bytes: string;
  update_time: string;
  lease?: { holder: string };
}

/** How a folder and the cluster differ, or what a sync has done. */
export interface Sync {
  name?: string;
  remote?: string;
  revision?: number;
  uploaded?: number;
  downloaded?: number;
  conflicts?: string[];
  conflicts_count?: number;
  problems?: Record<string, string>;
  refused?: string;
  daemon?: { mode: string; phase: string } | null;
}

export interface Service {
  name: string;
  type: string;
  state?: string;
  message?: string;
  url?: string;
}

/** The facts of a container that other tasks do not have. */
export interface Container {
  services?: Service[];
  url?: string;
  ends_at?: string;
  idle_seconds?: number;
  notice?: string;
  notice_until?: string;
}

export interface Draft {
  name: string;
  draft: string;
  parameters: string[];
  /** The initial values of the form: those of the last submission, or of a task file. */
  begin: Record<string, unknown> | null;
  /** The workspace that contains the file; empty if there is none. */
  workspace: string;
  /** The difference from the last submission; null if it is unknown. */
  changes: string | null;
}

/** An artifact that a task reads or writes, with its version. */
export interface Artifact {
  name: string;
  version?: string;
  user_group?: string;
  type?: string;
  location?: string;
}

export interface Submission {
  path: string;
  cells?: string[];
  parameters: Record<string, string>;
  form: Record<string, unknown>;
  yaml?: string;
  draft?: string;
  /** Push the workspace first, and run the pushed revision. */
  push?: boolean;
  artifacts?: { input?: Artifact; output?: Artifact };
}

/** What the user must decide first, or the path of the script. */
export interface Script {
  specials?: Array<{ cell: number; line: number; text: string }>;
  exists?: string;
  path?: string;
}

export interface Check {
  yaml: string;
  spec: Record<string, any>;
  outcome?: string;
  message?: string;
  error?: Failure;
}
