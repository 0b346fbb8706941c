/** Types of requests and responses of the server extension. */
import { Failure } from './types';
import { Point } from './usage';

export interface Me {
  user: string;
  role: string;
  cluster: string;
  version: string;
  /** The operator who views the container of `user`; empty: none. */
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

/** What ranks used: for each step that was measured when it begins, CPUs, memory, GPUs, GPU memory. */
export interface Series {
  start: number;
  end: number;
  step: number;
  ranks: Array<{ rank: number; run: number; points: Point[] }>;
  /** Of all ranks together; no points where there is one rank. */
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
  /** Whether it has ipykernel; null: unknown here. */
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

/** How a folder and its side on the cluster differ, or what a sync has done about it. */
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

/** What a container has beside being a task. */
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
  /** Initial values of the form: of the last submission, or of a task file. */
  begin: Record<string, unknown> | null;
  /** The workspace that the file is in; empty: none. */
  workspace: string;
  /** How it differs from what was submitted last; null: not known. */
  changes: string | null;
}

/** An artifact that a task reads or makes, with its version. */
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
  /** Push the workspace first, and run exactly that. */
  push?: boolean;
  artifacts?: { input?: Artifact; output?: Artifact };
}

/** What first has to be decided, or where the script is. */
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
