/** What the server extension sends; see hai_jupyter/live/rows.py and subscriber.py. */

/** Agents of a task that the server does not hear. */
export interface Silence {
  count: number;
  /** The first of these ranks. */
  rank: number;
  /** Ranks of the run; 0: not known. */
  of: number;
  /** When the one that has been silent for longest was last heard. */
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
  /** When its agent was last heard, while it is silent. */
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

/** What the agent says before this container is taken back; seconds since 1970. */
export interface Notice {
  kind: string;
  reason: string;
  given_at: number;
  ends_at: number;
}

export interface Frame {
  tasks: TaskRow[];
  nodes: NodeRow[];
  /** Everything up to here was told; 0: more of the same follows. */
  version: number;
  board?: string;
  /** What was told so far belongs to another board. */
  reset?: boolean;
  link?: LinkState;
  notice?: Notice | null;
  /** Which front end the server gives out. */
  build?: string;
}

/** [run, rank, seconds, text, redraw] */
export type LogRow = [number, number, number, string, number];
