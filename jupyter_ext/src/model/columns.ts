/** Optional columns of the task list: facts of the task, and its current resource use. */
import { TaskRow } from './types';
import { Point } from './usage';
import { bytes, moment } from './format';

export interface Column {
  name: string;
  label: string;
  /** Asked for now and then while the task runs. */
  used: boolean;
  text: (task: TaskRow, use: Point) => string;
}

const NONE: Point = [0, null, null, null, null];
const of = (value: number | null | undefined, text: (value: number) => string) => (value === null || value === undefined ? '' : text(value));
const percent = (value: number) => `${Math.round(value * 100)} %`;

export const columns: readonly Column[] = [
  { name: 'cpu', label: 'CPUs in use', used: true, text: (_, [, cpus]) => of(cpus, n => `${n.toFixed(1)} CPU`) },
  { name: 'memory', label: 'Memory in use', used: true, text: (_, [, , memory]) => of(memory, bytes) },
  { name: 'gpu', label: 'GPUs in use', used: true, text: (_, [, , , share]) => of(share, n => `GPU ${percent(n)}`) },
  { name: 'gpu_memory', label: 'GPU memory in use', used: true, text: (_, [, , , , memory]) => of(memory, n => `GPU ${bytes(n)}`) },
  { name: 'tags', label: 'Tags', used: false, text: task => (task.tags ?? []).join(' ') },
  { name: 'runs', label: 'Number of runs', used: false, text: task => (task.runs ? `×${task.runs}` : '') },
  { name: 'created', label: 'Submitted', used: false, text: task => moment(task.created) }
];

/** The texts of the chosen columns for a task. */
export function columnTexts(chosen: readonly string[], task: TaskRow, use: Point | undefined): string {
  const chosenColumns = columns.filter(column => chosen.includes(column.name));
  return chosenColumns.map(column => column.text(task, use ?? NONE)).filter(Boolean).join(' · ');
}

/** Whether some of them need the current resource use. */
export function needsUse(chosen: readonly string[]): boolean {
  return columns.some(column => column.used && chosen.includes(column.name));
}
