/** The page's copy of what the server extension knows. Widgets read it and are called when it has changed. */
import { Frame, LinkState, NodeRow, Notice, TaskRow } from './types';

const UNKNOWN: LinkState = { up: false, reason: 'CONNECTING', message: '' };

export type Change = (before: TaskRow | undefined, after: TaskRow) => void;

export class Board {
  readonly tasks = new Map<number, TaskRow>();
  readonly nodes = new Map<string, NodeRow>();
  link: LinkState = UNKNOWN;
  notice: Notice | null = null;
  /** The front end that the server gives out; empty: not known. */
  build = '';
  id = '';
  version = 0;
  /** True once everything that there was has been told. */
  complete = false;

  private listeners = new Set<() => void>();
  private watchers = new Set<Change>();
  private sorted: TaskRow[] | null = null;

  /** Newest first. */
  get rows(): TaskRow[] {
    this.sorted ??= [...this.tasks.values()].sort((a, b) => b.id - a.id);
    return this.sorted;
  }

  /** Take a frame in. */
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

  /** A task as an answer to a verb shows it; the stream will say the same. */
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

  /** Tell everybody who looks. */
  changed(): void {
    this.listeners.forEach(listener => listener());
  }

  /** Call after each change; returns how to stop that. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Call for each task that changes after the first picture was complete. */
  watch(watcher: Change): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** Other tasks that wait for the end of one of these. */
  behind(ids: readonly number[]): TaskRow[] {
    const these = new Set(ids);
    return this.rows.filter(row => !these.has(row.id) && row.awaited?.some(id => these.has(id)));
  }

  /** Unfinished tasks of a user by status, and nodes that are held. */
  numbers(): { running: number; waiting: number; busy: number; nodes: number } {
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
