/** Types of the live stream; see hai_jupyter/live/rows.py and subscriber.py. */

/** Agents of a task that the server does not hear. */
export interface Silence {
  count: number;
  /** The first of these ranks. */
  rank: number;
  /** The number of ranks of the run; 0 if it is unknown. */
  of: number;
  /** When the agent that has been silent for longest was last heard. */
  since: number;
}

export interface TaskRow {
  id: number;
  user: string;
  name: string;
  type?: string;
  group?: string;
  zone?: string;
  nodes: number;
  state: 'WAITING_INIT' | 'RUNNING' | 'SUSPENDED' | 'FINISHED';
  outcome?: string;
  priority: number;
  tags?: string[];
  starred?: boolean;
  held?: boolean;
  runs?: number;
  run?: string;
  why?: string;
  why_code?: string;
  place?: number;
  /** Tasks that have to end before it starts. */
  awaited?: number[];
  run_seconds?: number;
  created?: number;
  started?: number;
  finished?: number;
  run_started?: number;
  silent?: Silence;
  version: number;
}

export interface Tenant {
  task: number;
  name: string;
  user: string;
  rank: number;
  /** When its agent was last heard; absent unless the agent is silent. */
  silent?: number;
}

export interface NodeRow {
  name: string;
  group: string;
  zone: string;
  ready: boolean;
  cordoned: boolean;
  gpus: number;
  reason: string;
  tenants: Tenant[];
}

export interface Violation {
  field: string;
  message: string;
  line?: number;
  column?: number;
}

export interface Failure {
  reason: string;
  message: string;
  hint?: string;
  violations?: Violation[];
}

export interface LinkState extends Failure {
  up: boolean;
}

/** The eviction notice of this container; times in seconds since 1970. */
export interface Notice {
  kind: string;
  reason: string;
  given_at: number;
  ends_at: number;
}

export interface Frame {
  tasks: TaskRow[];
  nodes: NodeRow[];
  /** The state is complete up to this version; 0 if more frames follow. */
  version: number;
  board?: string;
  /** The state so far belongs to another server process; it must be dropped. */
  reset?: boolean;
  link?: LinkState;
  notice?: Notice | null;
  /** The version of the front end on the server. */
  build?: string;
}

/** [run, rank, seconds, text, redraw] */
export type LogRow = [number, number, number, string, number];
