/** Glyph and tone of task states, never a colour alone: a copy of `hai.client.text.state_style`; a test compares them. */
export type Tone = 'good' | 'done' | 'busy' | 'waits' | 'held' | 'bad' | 'quiet' | 'plain';

export interface StateStyle {
  readonly glyph: string;
  readonly tone: Tone;
}

const STATE_STYLES: Record<string, StateStyle> = {
  WAITING_INIT: { glyph: '○', tone: 'waits' },
  WAITING: { glyph: '○', tone: 'waits' },
  SUSPENDED: { glyph: '◐', tone: 'waits' },
  HELD: { glyph: '‖', tone: 'held' },
  CREATED: { glyph: '◔', tone: 'busy' },
  BUILDING: { glyph: '◔', tone: 'busy' },
  RUNNING: { glyph: '●', tone: 'good' },
  SUSPENDING: { glyph: '◑', tone: 'busy' },
  STOPPING: { glyph: '◑', tone: 'busy' },
  TERMINATING: { glyph: '◑', tone: 'busy' },
  ENDED: { glyph: '■', tone: 'quiet' },
  SUCCEEDED: { glyph: '✓', tone: 'done' },
  FAILED: { glyph: '✗', tone: 'bad' },
  STOPPED: { glyph: '■', tone: 'quiet' },
  CANCELED: { glyph: '⊘', tone: 'quiet' },
  UNSCHEDULABLE: { glyph: '!', tone: 'bad' },
  SUCCEEDED_TERMINATING: { glyph: '✓', tone: 'busy' },
  FAILED_TERMINATING: { glyph: '✗', tone: 'busy' },
  STOPPED_TERMINATING: { glyph: '■', tone: 'busy' },
  READY: { glyph: '●', tone: 'good' },
  NOT_READY: { glyph: '✗', tone: 'bad' },
  CORDONED: { glyph: '‖', tone: 'held' }
};

/** The style of a task whose agent is silent. */
export const SILENT: StateStyle = { glyph: '◌', tone: 'bad' };

/** The style of a state that only a newer server has. */
export const UNKNOWN: StateStyle = { glyph: '?', tone: 'plain' };

/** Returns the style of a state. */
export function stateStyle(state: string): StateStyle {
  return STATE_STYLES[state] ?? UNKNOWN;
}
