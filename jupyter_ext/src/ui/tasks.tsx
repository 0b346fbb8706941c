/** The tab of tasks: filter and list. */
import * as React from 'react';

import { markedAfterClick } from '../model/batch';
import { matcher } from '../model/filter';
import { columnTexts } from '../model/columns';
import { silenceText, withoutRank } from '../model/agent_silence';
import { TaskRow } from '../model/types';
import { SILENT, stateStyle } from '../model/state_style';
import { durationText, levelName, status } from '../model/format';
import { Batch } from './batch';
import { Columns, useCurrentUsage } from './columns';
import { Context, useStore, useNow } from './context';
import { List } from './virtual_list';
import { Empty, Status, Verbs, runVerb } from './common';

/** This many letters at the end of a name are always visible, because tasks of a sweep differ there. */
const VISIBLE_TAIL = 12;
const ROW_HEIGHT = 46;
const ROW_HEIGHT_WITH_COLUMNS = 62;
const QUICK: ReadonlyArray<readonly [string, string]> = [
  ['Mine', 'user:me'],
  ['Unfinished', 'state:running,waiting_init,suspended'],
  ['Failed', 'status:failed'],
  ['All', '']
];

interface Props {
  context: Context;
  filter: string;
  columns: string[];
  onChange: (changed: { filter?: string; columns?: string[] }) => void;
}

/** Filters while the user types; the buttons write into the same field. */
export function Tasks(props: Props): JSX.Element {
  const { context, filter, columns, onChange } = props;
  const onFilter = (filter: string) => onChange({ filter });
  const turn = useStore(context);
  const now = useNow();
  const [chosen, setChosen] = React.useState<number>(0);
  const [marks, setMarks] = React.useState<ReadonlySet<number>>(new Set());
  const me = context.me()?.user ?? '';
  const rows = React.useMemo(() => context.store.rows.filter(matcher(filter, me)), [turn, filter, me]);
  const height = columns.length > 0 ? ROW_HEIGHT_WITH_COLUMNS : ROW_HEIGHT;
  const usage = useCurrentUsage(context, rows, columns);
  const pick = React.useCallback((id: number) => {
    setChosen(id);
    context.shell.onSelect(id);
  }, []);
  const marked = [...marks].flatMap(id => context.store.tasks.get(id) ?? []);
  const latest = React.useRef({ rows, marks, chosen });
  latest.current = { rows, marks, chosen };
  const mark = React.useCallback((id: number, how: 'add' | 'range') => {
    const { rows, marks, chosen } = latest.current;
    setMarks(markedAfterClick(rows.map(row => row.id), marks, chosen, id, how));
    setChosen(id);
  }, []);
  const onMarkKey = (id: number, key: string) => {
    const keys: Record<string, () => void> = {
      x: () => mark(id, 'add'),
      'Ctrl+a': () => setMarks(new Set(rows.map(row => row.id))),
      Escape: () => setMarks(new Set())
    };
    keys[key]?.();
    return key in keys;
  };
  const index = Math.max(0, rows.findIndex(row => row.id === chosen));
  const row = (i: number, isChosen: boolean, style: React.CSSProperties) => (
    <Row
      key={rows[i]!.id}
      task={rows[i]!}
      context={context}
      lasts={durationText(rows[i]!, now)}
      silent={silenceOf(context, rows[i]!, now)}
      more={columnTexts(columns, rows[i]!, usage[rows[i]!.id])}
      chosen={isChosen}
      marked={marks.has(rows[i]!.id)}
      top={style.top as number}
      height={height}
      me={me}
      onChoose={pick}
      onMark={mark}
    />
  );
  return (
    <div className="hai-tab">
      <div className="hai-bar">
        <input
          className="hai-input"
          type="search"
          value={filter}
          placeholder={context.translate('Filter: words, state:running, tag:…')}
          aria-label={context.translate('Filter')}
          onChange={event => onFilter(event.target.value)}
        />
        <Columns context={context} chosen={columns} onChange={columns => onChange({ columns })} />
        <div className="hai-quick">
          {QUICK.map(([label, text]) => (
            <button
              key={label}
              className="hai-button hai-button-small"
              aria-pressed={filter === text}
              onClick={() => onFilter(text)}
            >
              {context.translate(label)}
            </button>
          ))}
          <span className="hai-dim hai-count">{rows.length}</span>
        </div>
      </div>
      {marked.length > 0 && <Batch context={context} marked={marked} onClear={() => setMarks(new Set())} />}
      {rows.length === 0 ? (
        <Empty>{emptyText(context, filter)}</Empty>
      ) : (
        <List
          count={rows.length}
          rowHeight={height}
          label={context.translate('Tasks')}
          row={row}
          chosen={index}
          active={elementOf(rows[index]!)}
          onChoose={i => rows[i] && pick(rows[i]!.id)}
          onOpen={i => context.shell.openTask(rows[i]!.id)}
          onKey={(i, key) => rows[i] !== undefined && (onMarkKey(rows[i]!.id, key) || onTaskKey(context, rows[i]!, key))}
        />
      )}
    </div>
  );
}

function elementOf(task: TaskRow): string {
  return `hai-task-${task.id}`;
}

function emptyText(context: Context, filter: string): string {
  if (!context.store.complete) {
    return context.translate(context.store.link.reason === 'CONNECTING' ? 'Loading …' : 'Nothing was loaded yet.');
  }
  const hidden = filter && context.store.tasks.size > 0;
  return context.translate(hidden ? 'No task matches the filter.' : 'No tasks yet. Open a file and submit it.');
}

function onTaskKey(context: Context, task: TaskRow, key: string): boolean {
  const keys: Record<string, () => void> = {
    Delete: () => task.state !== 'FINISHED' && void runVerb(context, task, 'stop'),
    l: () => context.shell.openTask(task.id, 'logs'),
    'Alt+c': () => copyNodes(context, task)
  };
  keys[key]?.();
  return key in keys;
}

function copyNodes(context: Context, task: TaskRow): void {
  const held = [...context.store.nodes.values()].filter(node => node.tenants.some(tenant => tenant.task === task.id));
  void navigator.clipboard.writeText(held.map(node => node.name).join(' '));
}

function silenceOf(context: Context, task: TaskRow, now: number): string {
  return task.silent ? silenceText(context.translate, withoutRank(task.silent), now) : '';
}

function awaitedText(context: Context, awaited: readonly number[]): string {
  const task = awaited.length === 1 ? 'after #{id}' : 'after {n} tasks';
  return awaited.length ? `${context.translate(task, { id: awaited[0]!, n: awaited.length })} · ` : '';
}

/** Returns `range` for a click with Shift, `add` for one with Ctrl or Cmd, else null. */
function markModeOf(event: React.MouseEvent): 'range' | 'add' | null {
  return event.shiftKey ? 'range' : event.ctrlKey || event.metaKey ? 'add' : null;
}

interface RowProps {
  task: TaskRow;
  context: Context;
  lasts: string;
  /** For how long agents have been silent; empty if all are heard. */
  silent: string;
  /** Texts of the chosen columns. */
  more: string;
  chosen: boolean;
  marked: boolean;
  top: number;
  height: number;
  /** The user, who is not named in the user's own rows. */
  me: string;
  onChoose: (id: number) => void;
  /** A click with Ctrl (or Cmd), or with Shift. */
  onMark: (id: number, how: 'add' | 'range') => void;
}

/** A row, which is drawn again only when it has changed; so scrolling costs only the new rows. */
const Row = React.memo(function Row(props: RowProps): JSX.Element {
  const { task, context } = props;
  const position = task.place ? `${context.translate('place')} ${task.place} · ` : awaitedText(context, task.awaited ?? []);
  const letters = [...task.name];
  const where = `${task.nodes}×${task.group ?? ''}`;
  return (
    <div
      className={`hai-row hai-edge-${(task.silent ? SILENT : stateStyle(status(task))).tone} ${props.chosen ? 'hai-chosen' : ''} ${props.marked ? 'hai-picked' : ''}`}
      style={{ position: 'absolute', left: 0, right: 0, top: props.top, height: props.height }}
      role="option"
      id={elementOf(task)}
      aria-selected={props.chosen}
      aria-checked={props.marked}
      data-task={task.id}
      title={`${task.name}\n${props.silent || (task.why ?? '')}`}
      onClick={event => {
        const how = markModeOf(event);
        how ? props.onMark(task.id, how) : props.onChoose(task.id);
      }}
      onDoubleClick={() => context.shell.openTask(task.id)}
    >
      <div className="hai-row-head">
        <a
          className="hai-name"
          aria-label={task.name}
          onClick={event => markModeOf(event) || context.shell.openTask(task.id)}
        >
          <span>
            {props.marked ? '☑ ' : ''}
            {task.starred ? '★ ' : ''}
            {letters.slice(0, -VISIBLE_TAIL).join('')}
          </span>
          <span>{letters.slice(-VISIBLE_TAIL).join('')}</span>
        </a>
        <Verbs task={task} context={context} />
        <Status task={task} context={context} />
      </div>
      <div className="hai-row-foot">
        <span className="hai-number">#{task.id}</span>
        <span>
          {task.user === props.me ? '' : task.user} {where} {levelName(task.priority)}
        </span>
        {props.silent ? (
          <span className="hai-lasting hai-shrinks hai-tone-bad">{props.silent}</span>
        ) : (
          <span className="hai-lasting">
            {position}
            {props.lasts}
          </span>
        )}
      </div>
      {props.more && <div className="hai-more">{props.more}</div>}
    </div>
  );
});
