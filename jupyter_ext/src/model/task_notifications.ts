/** Decides which changes of tasks notify the user. */
import { TaskRow } from './types';

export interface TaskNotification {
  kind: 'success' | 'error' | 'info';
  /** With {id}, {name} and {why} to fill in. */
  text: string;
  task: TaskRow;
}

/** Returns the notification for a change of one of the user's tasks, or null. */
export function notificationFor(before: TaskRow | undefined, after: TaskRow, me: string): TaskNotification | null {
  if (after.user !== me || !before) {
    return null;
  }
  if (before.state !== 'FINISHED' && after.state === 'FINISHED') {
    return endNotification(after);
  }
  if (before.state === 'RUNNING' && after.state === 'SUSPENDED' && !after.held) {
    return { kind: 'info', text: 'Task {id} {name} was suspended: {why}', task: after };
  }
  return null;
}

function endNotification(task: TaskRow): TaskNotification | null {
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

/** Control characters, and those that change the direction of writing. */
const CONTROL_CHARACTERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Replaces {key} by its value without control characters, because a value may be a name from another user. */
export function fill(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (all, word) => String(values[word] ?? all).replace(CONTROL_CHARACTERS, ''));
}
