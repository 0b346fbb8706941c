/** The tab of tasks: filter and list. */
import * as React from 'react';

import { chosen as choose } from '../model/batch';
import { matcher } from '../model/filter';
import { columnTexts } from '../model/columns';
import { shortened, silence } from '../model/agent_silence';
import { TaskRow } from '../model/types';
import { SILENT, stateStyle } from '../model/state_style';
import { lasting, level, status } from '../model/format';
import { Batch } from './batch';
import { Columns, useUses } from './columns';
import { Context, useStore, useNow } from './context';
import { List } from './virtual_list';
import { Empty, Status, Verbs, steer } from './common';

/** So many letters of a name are shown always: tasks of a sweep differ at its end. */
const TAIL = 12;
const ROW = 46;
const ROW_WITH_MORE = 62;
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

/** What is typed filters as it is typed; the buttons write into the same field. */
export function Tasks(props: Props): JSX.Element {
  const { context, filter, columns, onChange } = props;
  const onFilter = (filter: string) => onChange({ filter });
  const turn = useStore(context);
  const now = useNow();
  const [chosen, setChosen] = React.useState<number>(0);
  const [marks, setMarks] = React.useState<ReadonlySet<number>>(new Set());
  const me = context.me()?.user ?? '';
  const rows = React.useMemo(() => context.store.rows.filter(matcher(filter, me)), [turn, filter, me]);
  const height = columns.length > 0 ? ROW_WITH_MORE : ROW;
  const uses = useUses(context, rows, columns);
  const pick = React.useCallback((id: number) => {
    setChosen(id);
    context.shell.chose(id);
  }, []);
  const marked = [...marks].flatMap(id => context.store.tasks.get(id) ?? []);
  const latest = React.useRef({ rows, marks, chosen });
  latest.current = { rows, marks, chosen };
  const mark = React.useCallback((id: number, how: 'add' | 'range') => {
    const { rows, marks, chosen } = latest.current;
    setMarks(choose(rows.map(row => row.id), marks, chosen, id, how));
    setChosen(id);
  }, []);
  const marking = (id: number, key: string) => {
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
      lasts={lasting(rows[i]!, now)}
      silent={silentFor(context, rows[i]!, now)}
      more={columnTexts(columns, rows[i]!, uses[rows[i]!.id])}
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
        <Empty>{emptiness(context, filter)}</Empty>
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
          onKey={(i, key) => rows[i] !== undefined && (marking(rows[i]!.id, key) || byKey(context, rows[i]!, key))}
        />
      )}
    </div>
  );
}

function elementOf(task: TaskRow): string {
  return `hai-task-${task.id}`;
}

function emptiness(context: Context, filter: string): string {
  if (!context.store.complete) {
    return context.translate(context.store.link.reason === 'CONNECTING' ? 'Loading …' : 'Nothing was loaded yet.');
  }
  const hidden = filter && context.store.tasks.size > 0;
  return context.translate(hidden ? 'No task matches the filter.' : 'No tasks yet. Open a file and submit it.');
}

function byKey(context: Context, task: TaskRow, key: string): boolean {
  const keys: Record<string, () => void> = {
    Delete: () => task.state !== 'FINISHED' && void steer(context, task, 'stop'),
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

function silentFor(context: Context, task: TaskRow, now: number): string {
  return task.silent ? silence(context.translate, shortened(task.silent), now) : '';
}

function after(context: Context, awaited: readonly number[]): string {
  const task = awaited.length === 1 ? 'after #{id}' : 'after {n} tasks';
  return awaited.length ? `${context.translate(task, { id: awaited[0]!, n: awaited.length })} · ` : '';
}

/** A click with Shift marks all from the chosen one on, with Ctrl (or Cmd) this one. */
function marks(event: React.MouseEvent): 'range' | 'add' | null {
  return event.shiftKey ? 'range' : event.ctrlKey || event.metaKey ? 'add' : null;
}

interface RowProps {
  task: TaskRow;
  context: Context;
  lasts: string;
  /** For how long agents have been silent; empty: all are heard. */
  silent: string;
  /** Texts of the chosen columns. */
  more: string;
  chosen: boolean;
  marked: boolean;
  top: number;
  height: number;
  /** Decides about the buttons, and is not named. */
  me: string;
  onChoose: (id: number) => void;
  /** Clicked with Ctrl (or Cmd), or with Shift. */
  onMark: (id: number, how: 'add' | 'range') => void;
}

/** Drawn again only when something in it has changed, so that scrolling costs what comes into sight. */
const Row = React.memo(function Row(props: RowProps): JSX.Element {
  const { task, context } = props;
  const position = task.place ? `${context.translate('place')} ${task.place} · ` : after(context, task.awaited ?? []);
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
        const how = marks(event);
        how ? props.onMark(task.id, how) : props.onChoose(task.id);
      }}
      onDoubleClick={() => context.shell.openTask(task.id)}
    >
      <div className="hai-row-head">
        <a
          className="hai-name"
          aria-label={task.name}
          onClick={event => marks(event) || context.shell.openTask(task.id)}
        >
          <span>
            {props.marked ? '☑ ' : ''}
            {task.starred ? '★ ' : ''}
            {letters.slice(0, -TAIL).join('')}
          </span>
          <span>{letters.slice(-TAIL).join('')}</span>
        </a>
        <Verbs task={task} context={context} />
        <Status task={task} context={context} />
      </div>
      <div className="hai-row-foot">
        <span className="hai-number">#{task.id}</span>
        <span>
          {task.user === props.me ? '' : task.user} {where} {level(task.priority)}
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
