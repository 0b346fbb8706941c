/** Optional columns of the task list: facts of the task, and its current resource use. */
import { TaskRow } from './types';
import { Point } from './usage';
import { bytes, moment } from './format';

export interface Column {
  name: string;
  label: string;
  /** True if the column shows the current usage, which is loaded at intervals. */
  showsUsage: boolean;
  text: (task: TaskRow, usage: Point) => string;
}

const NONE: Point = [0, null, null, null, null];
const format = (value: number | null | undefined, text: (value: number) => string) => (value === null || value === undefined ? '' : text(value));
const percent = (value: number) => `${Math.round(value * 100)} %`;

export const columns: readonly Column[] = [
  { name: 'cpu', label: 'CPUs in use', showsUsage: true, text: (_, [, cpus]) => format(cpus, n => `${n.toFixed(1)} CPU`) },
  { name: 'memory', label: 'Memory in use', showsUsage: true, text: (_, [, , memory]) => format(memory, bytes) },
  { name: 'gpu', label: 'GPUs in use', showsUsage: true, text: (_, [, , , share]) => format(share, n => `GPU ${percent(n)}`) },
  { name: 'gpu_memory', label: 'GPU memory in use', showsUsage: true, text: (_, [, , , , memory]) => format(memory, n => `GPU ${bytes(n)}`) },
  { name: 'tags', label: 'Tags', showsUsage: false, text: task => (task.tags ?? []).join(' ') },
  { name: 'runs', label: 'Number of runs', showsUsage: false, text: task => (task.runs ? `×${task.runs}` : '') },
  { name: 'created', label: 'Submitted', showsUsage: false, text: task => moment(task.created) }
];

/** Returns the texts of the chosen columns for a task. */
export function columnTexts(chosen: readonly string[], task: TaskRow, usage: Point | undefined): string {
  const chosenColumns = columns.filter(column => chosen.includes(column.name));
  return chosenColumns.map(column => column.text(task, usage ?? NONE)).filter(Boolean).join(' · ');
}

/** Returns whether some columns show the current usage. */
export function showUsage(chosen: readonly string[]): boolean {
  return columns.some(column => column.showsUsage && chosen.includes(column.name));
}
