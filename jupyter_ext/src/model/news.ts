/** Which changes of tasks are worth a word to the user. */
import { TaskRow } from './types';

export interface News {
  kind: 'success' | 'error' | 'info';
  /** With {id}, {name} and {why} to fill in. */
  text: string;
  task: TaskRow;
}

/** What to say of a change of one of the user's own tasks; null: nothing. */
export function news(before: TaskRow | undefined, after: TaskRow, me: string): News | null {
  if (after.user !== me || !before) {
    return null;
  }
  if (before.state !== 'FINISHED' && after.state === 'FINISHED') {
    return ended(after);
  }
  if (before.state === 'RUNNING' && after.state === 'SUSPENDED' && !after.held) {
    return { kind: 'info', text: 'Task {id} {name} was suspended: {why}', task: after };
  }
  return null;
}

function ended(task: TaskRow): News | null {
  switch (task.outcome) {
    case 'SUCCEEDED':
      return { kind: 'success', text: 'Task {id} {name} has succeeded', task };
    case 'FAILED':
      return { kind: 'error', text: 'Task {id} {name} has failed: {why}', task };
    case 'CANCELED':
      return { kind: 'info', text: 'Task {id} {name} was cancelled: {why}', task };
    default:
      return { kind: 'info', text: 'Task {id} {name} was stopped', task };
  }
}

/** Control characters, and what turns the direction of writing around for all that follows. */
const STEERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Replace {word} by its value. Values may be names that others have given: they change nothing of the sentence around them. */
export function fill(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (all, word) => String(values[word] ?? all).replace(STEERS, ''));
}
