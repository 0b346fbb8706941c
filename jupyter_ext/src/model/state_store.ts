/** Holds tasks and nodes as last received from the server extension, and notifies widgets of changes. */
import { Frame, LinkState, NodeRow, Notice, TaskRow } from './types';

const UNKNOWN: LinkState = { up: false, reason: 'CONNECTING', message: '' };

export type Change = (before: TaskRow | undefined, after: TaskRow) => void;

export class StateStore {
  readonly tasks = new Map<number, TaskRow>();
  readonly nodes = new Map<string, NodeRow>();
  link: LinkState = UNKNOWN;
  notice: Notice | null = null;
  /** The version of the front end on the server; empty if it is unknown. */
  build = '';
  id = '';
  version = 0;
  /** True after the first complete state. */
  complete = false;

  private listeners = new Set<() => void>();
  private watchers = new Set<Change>();
  private sorted: TaskRow[] | null = null;

  /** Returns all tasks, newest first. */
  get rows(): TaskRow[] {
    this.sorted ??= [...this.tasks.values()].sort((a, b) => b.id - a.id);
    return this.sorted;
  }

  /** Applies a frame of the stream. */
  apply(frame: Frame): void {
    if (frame.reset) {
      this.tasks.clear();
      this.nodes.clear();
      this.version = 0;
      this.complete = false;
    }
    this.id = frame.board ?? this.id;
    this.build = frame.build ?? this.build;
    this.link = frame.link ?? this.link;
    this.notice = frame.notice === undefined ? this.notice : frame.notice;
    frame.tasks.forEach(task => this.put(task));
    frame.nodes.forEach(node => this.nodes.set(node.name, node));
    if (frame.version > 0) {
      this.version = frame.version;
      this.complete = true;
    }
    this.changed();
  }

  /** Stores the task of a response, which the stream will report, too. */
  put(task: TaskRow): void {
    const before = this.tasks.get(task.id);
    if (before && before.version > task.version) {
      return;
    }
    this.tasks.set(task.id, task);
    this.sorted = null;
    if (this.complete) {
      this.watchers.forEach(watcher => watcher(before, task));
    }
  }

  /** Notifies all listeners. */
  changed(): void {
    this.listeners.forEach(listener => listener());
  }

  /** Calls the listener after each change; returns a function that stops it. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Calls the watcher for each task that changes after the first complete state. */
  watch(watcher: Change): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** Returns the other tasks that wait for the end of one of these. */
  dependents(ids: readonly number[]): TaskRow[] {
    const awaited = new Set(ids);
    return this.rows.filter(row => !awaited.has(row.id) && row.awaited?.some(id => awaited.has(id)));
  }

  /** Counts running and waiting tasks, and nodes with tasks. */
  counts(): { running: number; waiting: number; busy: number; nodes: number } {
    let running = 0;
    let waiting = 0;
    for (const task of this.tasks.values()) {
      running += task.state === 'RUNNING' ? 1 : 0;
      waiting += task.state === 'WAITING_INIT' || task.state === 'SUSPENDED' ? 1 : 0;
    }
    const nodes = [...this.nodes.values()];
    return { running, waiting, busy: nodes.filter(n => n.tenants.length).length, nodes: nodes.length };
  }
}
