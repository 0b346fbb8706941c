/** Components that several views share. */
import * as React from 'react';

import { silenceText } from '../model/agent_silence';
import { SILENT, stateStyle } from '../model/state_style';
import { TaskRow } from '../model/types';
import { status, verbs } from '../model/format';
import { Context } from './context';

/** The status of a task: glyph, name and colour. */
export function Status(props: { task: TaskRow; context: Context }): JSX.Element {
  const name = status(props.task);
  const style = props.task.silent ? SILENT : stateStyle(name);
  return (
    <span className={`hai-status hai-tone-${style.tone}`}>
      <span aria-hidden="true">{style.glyph}</span> {props.context.translate(name)}
    </span>
  );
}

/** Says for how long agents of a task have been silent; nothing if all are heard. */
export function Silent(props: { task: TaskRow; context: Context; now: number }): JSX.Element | null {
  const { task, context, now } = props;
  return task.silent ? (
    <div className="hai-why hai-tone-bad">
      {silenceText(context.translate, task.silent, now)}; {context.translate('the program may run on unseen')}
    </div>
  ) : null;
}

/** The name of a task as a link to its page; a link also works with the keyboard and in another tab. */
export function TaskLink(props: { row: Pick<TaskRow, 'id' | 'name'>; context: Context }): JSX.Element {
  const { row, context } = props;
  return (
    <a
      className="hai-name"
      title={row.name}
      href={`?hai-task=${row.id}`}
      onClick={event => {
        if (!event.ctrlKey && !event.metaKey && !event.shiftKey) {
          event.preventDefault();
          context.shell.openTask(row.id);
        }
      }}
    >
      {row.name}
    </a>
  );
}

const MARKS: Record<string, string> = { stop: '■', suspend: '‖', resume: '▶', again: '↻' };
const LABELS: Record<string, string> = { stop: 'Stop', suspend: 'Suspend', resume: 'Resume', again: 'Submit again' };

/** Buttons for the actions that are possible now. */
export function Verbs(props: { task: TaskRow; context: Context; words?: boolean }): JSX.Element {
  const { task, context, words } = props;
  const own = context.me()?.user === task.user;
  const isAllowed = (verb: string) => own || (context.me()?.role !== 'USER' && verb !== 'again');
  return (
    <span className="hai-verbs">
      {verbs(task)
        .filter(isAllowed)
        .map(verb => (
          <button
            key={verb}
            className={`hai-button ${words ? '' : 'hai-button-small'}`}
            title={context.translate(LABELS[verb] ?? verb)}
            aria-label={`${context.translate(LABELS[verb] ?? verb)} ${task.name}`}
            onClick={event => {
              event.stopPropagation();
              void runVerb(context, task, verb);
            }}
          >
            {words ? context.translate(LABELS[verb] ?? verb) : MARKS[verb]}
          </button>
        ))}
    </span>
  );
}

/** Runs an action, after a question if it cannot be undone; shows the answer at once. */
export async function runVerb(context: Context, task: TaskRow, verb: string): Promise<void> {
  const { translate, shell } = context;
  if (verb === 'stop') {
    const text = translate('Task {id} {name} ends for good.', { id: task.id, name: task.name });
    if (!(await shell.confirm(translate('Stop the task?'), text + dependentsNote(context, [task.id]), translate('Stop')))) {
      return;
    }
  }
  try {
    const after = await context.api.verb(task.id, verb, verb === 'suspend' ? { hold: true } : {});
    context.store.put(after);
    context.store.changed();
    verb === 'again' && shell.openTask(after.id);
  } catch (error) {
    shell.fail(error);
  }
}

/** Returns a note about other tasks that wait for these; empty if there are none. */
export function dependentsNote(context: Context, ids: readonly number[]): string {
  const n = context.store.dependents(ids).length;
  return n ? ` ${context.translate('Tasks that wait for that: {n}.', { n })}` : '';
}

/** An error, and what to do about it. */
export function Failed(props: { error: Error | null; context: Context }): JSX.Element | null {
  if (!props.error) {
    return null;
  }
  const hint = (props.error as { hint?: string }).hint;
  return (
    <div className="hai-failed" role="alert">
      <div>{props.error.message}</div>
      {hint && <div className="hai-dim">{hint}</div>}
    </div>
  );
}

/** A bar that shows how much of a limit is used, with the numbers in it. */
export function Meter(props: { used: number; of: number; text?: string; calm?: boolean }): JSX.Element {
  const share = props.of > 0 ? Math.min(1, props.used / props.of) : 0;
  return (
    <div className="hai-meter" role="meter" aria-valuenow={props.used} aria-valuemax={props.of} aria-valuemin={0}>
      <div className={`hai-meter-fill ${share >= 0.9 && !props.calm ? 'hai-full' : ''}`} style={{ width: `${share * 100}%` }} />
      <span>{props.text ?? `${props.used} / ${props.of}`}</span>
    </div>
  );
}

/** A sentence in the place of an empty list. */
export function Empty(props: { children: React.ReactNode }): JSX.Element {
  return <div className="hai-empty">{props.children}</div>;
}

/** Moves through a list of tabs by arrow keys; after the last tab comes the first. */
export function switchTabByArrow(event: React.KeyboardEvent<HTMLElement>): void {
  const step = ({ ArrowLeft: -1, ArrowRight: 1 } as Record<string, number>)[event.key] ?? 0;
  const tabs = [...event.currentTarget.querySelectorAll<HTMLElement>('[role=tab]')];
  const at = tabs.indexOf(event.target as HTMLElement);
  if (step && at >= 0) {
    const next = tabs[(at + step + tabs.length) % tabs.length]!;
    next.focus();
    next.click();
  }
}

/** A button that loads again. */
export function Reload(props: { context: Context; onClick: () => void }): JSX.Element {
  return (
    <button className="hai-button hai-button-small hai-reload" onClick={props.onClick}>
      ⟳ {props.context.translate('Reload')}
    </button>
  );
}

/** An input with its label. */
export function Field(props: { label: string; wide?: boolean; children: React.ReactNode }): JSX.Element {
  return (
    <label className={props.wide ? 'hai-field hai-wide' : 'hai-field'}>
      <span>{props.label}</span>
      {props.children}
    </label>
  );
}
