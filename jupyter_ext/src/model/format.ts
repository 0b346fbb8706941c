/** Formats statuses, priorities, sizes and times. */
import { TaskRow } from './types';

const LEVELS: ReadonlyArray<readonly [number, string]> = [
  [50, 'EXTREME_HIGH'],
  [40, 'VERY_HIGH'],
  [30, 'HIGH'],
  [20, 'ABOVE_NORMAL'],
  [10, 'NORMAL'],
  [8, 'UNDER_NORMAL'],
  [5, 'BELOW_NORMAL'],
  [0, 'LOW'],
  [-1, 'AUTO']
];

/** All levels, highest first. */
export const levels = LEVELS;

/** Returns the name of a priority; the number itself if it has no name. */
export function levelName(priority: number): string {
  return LEVELS.find(([number]) => number === priority)?.[1] ?? String(priority);
}

/** Returns the outcome of a finished task, the step of a running one, HELD, or else the state. */
export function status(task: TaskRow): string {
  if (task.state === 'FINISHED') {
    return task.outcome ?? 'FINISHED';
  }
  if (task.state === 'RUNNING' && task.run && task.run !== 'RUNNING') {
    return task.run;
  }
  if (task.held) {
    return 'HELD';
  }
  return task.state === 'WAITING_INIT' ? 'WAITING' : task.state;
}

/** Returns the verbs that apply to a task now. */
export function verbs(task: TaskRow): string[] {
  if (task.state === 'FINISHED') {
    return task.type === 'training' ? ['again'] : [];
  }
  const isLeaving = ['SUSPENDING', 'STOPPING', 'TERMINATING'].includes(task.run ?? '');
  if (task.state === 'RUNNING' && !isLeaving) {
    return ['suspend', 'stop'];
  }
  return task.held ? ['resume', 'stop'] : ['stop'];
}

/** Returns a duration such as 7 s, 3 min 20 s, 2 h 5 min or 4 d 3 h. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  const parts: Array<readonly [number, string]> = [
    [Math.floor(s / 86400), 'd'],
    [Math.floor(s / 3600) % 24, 'h'],
    [Math.floor(s / 60) % 60, 'min'],
    [s % 60, 's']
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) {
    return '0 s';
  }
  const largest = parts.slice(first, first + 2).filter(([n]) => n > 0);
  return largest.map(([n, unit]) => `${n} ${unit}`).join(' ');
}

/** Returns for how long a task runs, has run, or waits. */
export function durationText(task: TaskRow, now: number): string {
  if (task.state === 'FINISHED') {
    return task.run_seconds ? span(task.run_seconds) : '';
  }
  if (task.state === 'RUNNING') {
    return task.run_started ? span(now - task.run_started) : '';
  }
  return task.created ? span(now - task.created) : '';
}

/** Returns the seconds for which a task has held nodes, including the current run. */
export function heldSeconds(task: TaskRow, now: number): number {
  const current = task.state === 'RUNNING' && task.run_started ? now - task.run_started : 0;
  return (task.run_seconds ?? 0) + Math.max(0, current);
}

/** Returns a size such as 512 MiB or 3.4 GiB. */
export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${size.toFixed(digits)} ${units[unit]}`;
}

/** Returns a time in the time zone and format of the browser. */
export function moment(seconds: number | undefined): string {
  return seconds ? new Date(seconds * 1000).toLocaleString() : '–';
}

/** Returns the time of day, with the date unless it is today. */
export function clock(at: Date, now = new Date()): string {
  return at.toDateString() === now.toDateString() ? at.toLocaleTimeString() : at.toLocaleString();
}

/** Returns the run, or the run and rank, of an event. JSON leaves out zeros; rank -1 means the run. */
export function runAndRank(run = 0, rank = 0): string {
  return run === 0 ? '' : rank < 0 ? `${run}` : `${run}.${rank}`;
}
